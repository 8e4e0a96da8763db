import { type DetailMessage, type Person, RELEASE_HEADER, type ReleaseRequest } from "../protocol.js";
import { byId, count, duration, make, number, setAttribute, setText, shown } from "./dom.js";

/** Lines of a list in the document. */
const MAX_LINES = 50;

const titleOf = ({ owner, key }: Person): string => shown(owner ?? key);

/** What a list of people needs besides the people. */
export interface Scene {
  readonly message: DetailMessage;
  readonly now: number;
  readonly mayRelease: boolean;
  readonly hosts: readonly string[];
  readonly heldSince: (person: Person) => number | null;
}

/** The people of one line: one, or several waiters of one owner. */
type Group = readonly [Person, ...Person[]];

/** One line of a list. */
interface Item {
  readonly element: HTMLElement;
  show(group: Group, scene: Scene): void;
}

/** What can be done to a holder or a waiter. It takes a step to see it: nobody releases by a slip. */
class Menu {
  readonly #button = make("button", { type: "button" }, "Release by force…");
  readonly #opener = make("summary", {}, "⋯");
  readonly element = make("details", { class: "menu" }, this.#opener, this.#button);
  #ask = (): void => {};

  constructor() {
    this.#button.addEventListener("click", () => {
      this.element.open = false;
      this.#ask();
    });
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.element.open) return;
      // The key closes the menu, and not the queue.
      event.stopPropagation();
      this.element.open = false;
      this.#opener.focus();
    });
    const closeFor = (target: EventTarget | null): void => {
      if (target instanceof Node && !this.element.contains(target)) this.element.open = false;
    };
    this.element.addEventListener("focusout", ({ relatedTarget }) => closeFor(relatedTarget));
    // Listens only while it is open: lines come and go.
    const clicked = ({ target }: Event): void => closeFor(target);
    this.element.addEventListener("toggle", () => {
      if (this.element.open) document.addEventListener("click", clicked);
      else document.removeEventListener("click", clicked);
    });
  }

  show(person: Person, state: "holds" | "waits for", { message, mayRelease, hosts }: Scene): void {
    this.element.hidden = !mayRelease;
    setAttribute(this.#opener, "aria-label", `Actions for ${titleOf(person)}`);
    this.#ask = () => askRelease(message.name, person, { state, etcd: hosts.map(shown).join(", ") });
  }
}

/** Whose entry it is, and why it is there. */
class Whom {
  readonly #who = make("bdi", { class: "who" });
  readonly #reason = make("bdi", { class: "reason" });
  readonly element = make("span", { class: "whom" }, this.#who, this.#reason);

  show(person: Person): void {
    setText(this.#who, titleOf(person));
    setText(this.#reason, shown(person.reason ?? ""));
  }
}

abstract class PersonItem implements Item {
  readonly element: HTMLElement;
  readonly #whom = new Whom();
  protected readonly facts = make("span", { class: "facts" });
  readonly #key = make("code", { class: "key" });
  readonly #menu = new Menu();

  constructor(
    kind: "person" | "waiter",
    private readonly state: "holds" | "waits for",
  ) {
    this.element = make("li", { class: kind }, this.#whom.element, this.facts, this.#menu.element, this.#key);
  }

  show([person]: Group, scene: Scene): void {
    this.#whom.show(person);
    setText(this.#key, `${shown(person.key)} · lease ${person.lease}`);
    this.#menu.show(person, this.state, scene);
  }
}

class Holder extends PersonItem {
  readonly #bar = make("span");
  readonly #track = make("span", { class: "track", "aria-hidden": "true" }, this.#bar);
  readonly #left = make("span");
  readonly #lease = make("span", { class: "lease" }, this.#track, this.#left);
  /** The longest that was seen: about the TTL. */
  #mostMs = 0;

  constructor() {
    super("person", "holds");
    this.facts.after(this.#lease);
  }

  override show(group: Group, scene: Scene): void {
    super.show(group, scene);
    const [person] = group;
    const { message, now } = scene;
    const since = scene.heldSince(person) ?? person.since;
    const heldFor = person.idle ? "kept, idle; here for" : person.sticky ? "held or kept for" : "for";
    const age = since === null ? "" : `${heldFor} ${duration(now - since)} · `;
    // Several have a permit, or are members, at once: they have no fence.
    const hasFence = message.kind !== "semaphore" && message.kind !== "members";
    const facts = hasFence ? `${age}fence ${person.revision}` : `${weightOf(person)}${age}`.slice(0, -3);
    setText(this.facts, person.isDelay ? "is dead; nobody else can hold yet" : facts);
    this.#lease.hidden = person.ttlMs === null;
    const leftMs = Math.max(0, (person.ttlMs ?? 0) - (now - message.now));
    this.#mostMs = Math.max(this.#mostMs, person.ttlMs ?? 0, 1);
    this.#bar.style.width = `${Math.min(100, (100 * leftMs) / this.#mostMs)}%`;
    setAttribute(this.#track, "data-low", leftMs < this.#mostMs / 4 ? "yes" : "no");
    const left = `${Math.ceil(leftMs / 1000)} s`;
    setText(this.#left, person.isDelay ? `free in ${left}` : `${left} of lease left`);
  }
}

class Waiter extends PersonItem {
  readonly #place = make("span", { class: "place" });

  constructor() {
    super("waiter", "waits for");
    this.element.prepend(this.#place);
  }

  override show(group: Group, scene: Scene): void {
    super.show(group, scene);
    const [person] = group;
    setText(this.#place, placeOf(person, scene));
    const age = person.since === null ? "" : `${duration(scene.now - person.since)} · `;
    setText(this.facts, `${priorityOf(person)}${weightOf(person)}${age}`.slice(0, -3));
  }
}

/** Of a call of a mutex with priorities, before other facts. */
const priorityOf = ({ priority }: Person): string => (priority === null ? "" : `priority ${priority} · `);

/** How many permits of a weighted semaphore it takes, before other facts. */
const weightOf = ({ weighted }: Person): string =>
  weighted ? `weight ${weighted.weight} of ${weighted.permits} · ` : "";

/** What its holders take of a weighted semaphore, behind their number; empty for other locks, and if not all holders are known. */
export function permitsText(holders: readonly Person[], total: number): string {
  const permits = holders[0]?.weighted?.permits;
  if (permits === undefined || holders.length < total) return "";
  const taken = holders.reduce((sum, { weighted }) => sum + (weighted?.weight ?? 0), 0);
  return ` (${number(taken)} of ${number(permits)} permits)`;
}

/** What all together take, before other facts. */
function weightsOf(group: Group): string {
  const weights = group.reduce((sum, { weighted }) => sum + (weighted?.weight ?? 0), 0);
  return weights > 0 ? `weight ${number(weights)} together · ` : "";
}

const placeOf = (person: Person, { message }: Scene): string => `${message.waiters.indexOf(person) + 1}.`;

/** Several waiters of one owner: a line that opens. */
class Crowd implements Item {
  readonly #place = make("span", { class: "place" });
  readonly #whom = new Whom();
  readonly #facts = make("span", { class: "facts" });
  readonly #line = make("summary", { class: "line" }, this.#place, this.#whom.element, this.#facts);
  readonly #waiters = new List(() => new Waiter());
  readonly #details = make("details", {}, this.#line, this.#waiters.element);
  readonly element = make("li", { class: "crowd" }, this.#details);

  show(group: Group, scene: Scene): void {
    const [first] = group;
    const waits = count(group.length, "waiter");
    const age = first.since === null ? "" : `${duration(scene.now - first.since)} · `;
    setText(this.#place, placeOf(first, scene));
    this.#whom.show(
      group.every(({ reason }) => reason === first.reason) ? first : { ...first, reason: null },
    );
    setText(this.#facts, `${waits} · ${weightsOf(group)}${age}`.slice(0, -3));
    this.#waiters.show(alone(group), scene);
  }
}

/** A list whose elements stay with their people. */
class List {
  readonly element = make("ol", { class: "people" });
  readonly #items = new Map<string, Item>();

  constructor(private readonly makeItem: (group: Group) => Item) {}

  show(groups: readonly Group[], scene: Scene): void {
    const named = new Map(groups.map((group) => [idOf(group), group]));
    for (const [id, { element }] of this.#items) {
      if (named.has(id)) continue;
      element.remove();
      this.#items.delete(id);
    }
    for (const [n, [id, group]] of [...named].entries()) {
      const item = this.#items.get(id) ?? this.makeItem(group);
      this.#items.set(id, item);
      item.show(group, scene);
      const there = this.element.children[n];
      if (there !== item.element) this.element.insertBefore(item.element, there ?? null);
    }
  }
}

const idOf = ([{ owner, key, revision }, ...more]: Group): string =>
  more.length > 0 ? `owner ${owner}` : `${revision} ${key}`;

const alone = (people: readonly Person[]): Group[] => people.map((person) => [person]);

/** Waiters of one owner together, where the first of them stands. */
function grouped(waiters: readonly Person[]): Group[] {
  const groups = new Map<string | Person, [Person, ...Person[]]>();
  for (const waiter of waiters) {
    const group = groups.get(waiter.owner ?? waiter);
    if (group) group.push(waiter);
    else groups.set(waiter.owner ?? waiter, [waiter]);
  }
  return [...groups.values()];
}

/** The holders of a queue, and its waiters by owner. */
export class People {
  readonly #holders = new List(() => new Holder());
  readonly #waiters = new List((group) => (group.length > 1 ? new Crowd() : new Waiter()));
  readonly holders = this.#holders.element;
  readonly waiters = this.#waiters.element;

  /** Returns how many waiters are in the document. */
  show(scene: Scene): number {
    const { holders, waiters } = scene.message;
    this.#holders.show(alone(holders.slice(0, MAX_LINES)), scene);
    const groups = grouped(waiters).slice(0, MAX_LINES);
    this.#waiters.show(groups, scene);
    return groups.flat().length;
  }
}

let wanted: ReleaseRequest | undefined;

/** Asks the viewer, then the server. */
function askRelease(
  name: string,
  { key, owner, revision, sticky }: Person,
  { state, etcd }: { state: "holds" | "waits for"; etcd: string },
): void {
  wanted = { name, key, revision };
  const risk =
    state === "holds"
      ? "The next waiter gets the lock at once. A holder that is still working may notice too late: check that it has ended, or that its writes are fenced."
      : "The waiter loses its place in the queue. A waiter of leasehold joins again at the end.";
  setText(
    byId("confirm-text"),
    `${shown(owner ?? key)} ${state === "holds" && sticky ? "holds or keeps" : state} ${shown(name)} in the etcd at ${etcd}.\n${risk}`,
  );
  byId("confirm-result").hidden = true;
  byId<HTMLButtonElement>("force").disabled = false;
  byId<HTMLDialogElement>("confirm").showModal();
  byId("cancel").focus();
}

async function send(request: ReleaseRequest): Promise<string | undefined> {
  try {
    const answer = await fetch("release", {
      method: "POST",
      headers: { "content-type": "application/json", [RELEASE_HEADER]: "1" },
      body: JSON.stringify(request),
    });
    return answer.ok ? undefined : `${(await answer.text()).trim()} (${answer.status})`;
  } catch {
    return "The server does not answer.";
  }
}

async function force(): Promise<void> {
  if (wanted === undefined) return;
  const button = byId<HTMLButtonElement>("force");
  button.disabled = true;
  const failure = await send(wanted);
  button.disabled = false;
  if (failure === undefined) return byId<HTMLDialogElement>("confirm").close();
  const result = byId("confirm-result");
  result.hidden = false;
  setText(result, failure);
}

export const listenForRelease = (): void => byId("force").addEventListener("click", () => void force());
