import {
  type DetailMessage,
  type Past,
  type Person,
  RELEASE_HEADER,
  type ReleaseRequest,
} from "../protocol.js";
import { Connection } from "./connection.js";
import {
  announce,
  byId,
  count,
  draw,
  duration,
  kindOf,
  make,
  number,
  setAttribute,
  setText,
  shown,
  timeOfDay,
} from "./dom.js";
import type { Store } from "./store.js";

const LOCK = { free: "Free", holds: "Holds", waits: "Waits, the next one first" } as const;
const ELECTION = { free: "No leader", holds: "Leads", waits: "Candidates, the next one first" } as const;

/** One queue, beside the table or in its place. */
export class Detail {
  readonly #section = byId("detail");
  readonly #title = make("h2", { id: "detail-title", tabindex: "-1" });
  readonly #sub = make("p", { class: "sub" });
  readonly #problem = make("p", { class: "problem", role: "status" });
  readonly #value = make("p", { class: "value" });
  readonly #holders = new People("holders");
  readonly #waiters = new People("waiters");
  readonly #heading = make("h3");
  readonly #waiting = make("h3");
  readonly #more = make("p", { class: "sub" });
  readonly #picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  readonly #legend = make(
    "p",
    { class: "sub" },
    "✕ the lease ended with the hold: its process lost it, or closed its session",
  );
  readonly #past = make("tbody");
  #connection: Connection | undefined;
  #message: DetailMessage | undefined;
  #name: string | undefined;

  constructor(private readonly store: Store) {
    const close = make("a", { class: "close", href: "#" }, "All queues");
    this.#picture.setAttribute("class", "picture");
    this.#picture.setAttribute("role", "img");
    this.#section.append(
      make("div", { class: "detail-top" }, this.#title, close),
      ...[this.#sub, this.#problem, this.#heading, this.#value, this.#holders.list],
      ...[make("h3", {}, "Hand-overs"), this.#picture, this.#legend, historyTable(this.#past)],
      ...[this.#waiting, this.#waiters.list, this.#more],
    );
  }

  /** Undefined: none. */
  open(name: string | undefined): void {
    if (name === this.#name) return;
    this.#connection?.close();
    this.#name = name;
    this.#message = undefined;
    this.#section.hidden = name === undefined;
    byId("overview").parentElement?.classList.toggle("split", name !== undefined);
    if (name === undefined) return;
    setText(this.#title, shown(name));
    // What the table knows, until the first message.
    const row = this.store.rows.get(name);
    const blank = { now: this.store.now(), name, kind: row?.kind ?? "unknown", problem: null, value: null };
    const total = row ?? { holders: 0, waiters: 0 };
    this.#show({ ...blank, holders: [], waiters: [], total, history: [] });
    this.#title.focus();
    this.#connection = new Connection(
      `events?queue=${encodeURIComponent(name)}`,
      { detail: (data) => this.#take(data as DetailMessage) },
      () => {},
    );
  }

  /** The ages, the leases and the picture go on between messages. */
  tick(): void {
    if (this.#message) this.#show(this.#message);
  }

  #take(message: DetailMessage): void {
    const before = this.#message?.holders[0];
    const [first] = message.holders;
    if (this.#message && first?.revision !== before?.revision) {
      const name = shown(this.#name ?? "");
      announce(first ? `${name} is now held by ${shown(first.owner ?? first.key)}` : `${name} is free`);
    }
    // While etcd does not answer, the last state stays.
    this.#message =
      message.problem !== null && this.#message ? { ...this.#message, problem: message.problem } : message;
    this.#show(this.#message);
  }

  #show(message: DetailMessage): void {
    const { history, problem } = message;
    const now = this.store.now();
    const heldSince = ({ revision }: Person): number | null =>
      history.findLast((hold) => hold.revision === revision)?.from ?? null;
    const { mayRelease, hosts } = this.store;
    const scene: Scene = { message, now, heldSince, mayRelease, hosts };
    this.#problem.hidden = problem === null;
    setText(this.#problem, problem ?? "");
    this.#showHeadings(message);
    this.#value.hidden = message.value === null;
    setText(this.#value, shown(message.value ?? ""));
    this.#holders.show(scene);
    this.#waiters.show(scene);
    this.#legend.hidden = !history.some(({ end }) => end === "lease ended");
    drawTimeline(this.#picture, history, now);
    showPast(this.#past, history, now);
  }

  #showHeadings({ kind, total, waiters }: DetailMessage): void {
    const words = kind === "election" ? ELECTION : LOCK;
    setText(
      this.#sub,
      `${kindOf(kind)} · ${count(total.holders, "holder")}, ${count(total.waiters, "waiter")}`,
    );
    setText(this.#heading, total.holders === 0 ? words.free : words.holds);
    setText(this.#waiting, total.waiters === 0 ? "Nobody waits" : words.waits);
    const hidden = total.waiters - Math.min(MAX_WAITERS, waiters.length);
    setText(this.#more, hidden > 0 && waiters.length > 0 ? `and ${number(hidden)} more` : "");
  }
}

/** Waiters in the document. */
const MAX_WAITERS = 50;

const titleOf = ({ owner, key }: Person): string => shown(owner ?? key);

/** What a list of people needs besides the people. */
interface Scene {
  readonly message: DetailMessage;
  readonly now: number;
  readonly mayRelease: boolean;
  readonly hosts: readonly string[];
  readonly heldSince: (person: Person) => number | null;
}

abstract class Item {
  readonly element: HTMLElement;
  readonly #who = make("bdi", { class: "who" });
  protected readonly facts = make("span", { class: "facts" });
  readonly #key = make("code", { class: "key" });
  readonly #button = make("button", { type: "button" }, "Release…");
  protected person: Person | undefined;
  #name = "";
  #etcd = "";

  constructor(kind: "person" | "waiter", state: "holds" | "waits for") {
    this.element = make("li", { class: kind }, this.#who, this.facts, this.#button, this.#key);
    this.#button.addEventListener("click", () => {
      if (this.person) askRelease(this.#name, this.person, { state, etcd: this.#etcd });
    });
  }

  show(person: Person, { message, mayRelease, hosts }: Scene): void {
    this.person = person;
    this.#etcd = hosts.map(shown).join(", ");
    this.#name = message.name;
    setText(this.#who, titleOf(person));
    setText(this.#key, `${shown(person.key)} · lease ${person.lease}`);
    this.#button.hidden = !mayRelease;
    setAttribute(this.#button, "aria-label", `Release ${titleOf(person)} by force`);
  }
}

class Holder extends Item {
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

  override show(person: Person, scene: Scene): void {
    super.show(person, scene);
    const { message, now } = scene;
    const since = scene.heldSince(person) ?? person.since;
    const age = since === null ? "" : `for ${duration(now - since)} · `;
    // A permit has no fence: several have it at once.
    setText(this.facts, message.kind === "semaphore" ? age.slice(0, -3) : `${age}fence ${person.revision}`);
    this.#lease.hidden = person.ttlMs === null;
    const leftMs = Math.max(0, (person.ttlMs ?? 0) - (now - message.now));
    this.#mostMs = Math.max(this.#mostMs, person.ttlMs ?? 0, 1);
    this.#bar.style.width = `${Math.min(100, (100 * leftMs) / this.#mostMs)}%`;
    setAttribute(this.#track, "data-low", leftMs < this.#mostMs / 4 ? "yes" : "no");
    setText(this.#left, `${Math.ceil(leftMs / 1000)} s of lease left`);
  }
}

class Waiter extends Item {
  readonly #place = make("span", { class: "place" });

  constructor() {
    super("waiter", "waits for");
    this.element.prepend(this.#place);
  }

  override show(person: Person, scene: Scene): void {
    super.show(person, scene);
    setText(this.#place, `${scene.message.waiters.indexOf(person) + 1}.`);
    setText(this.facts, person.since === null ? "" : duration(scene.now - person.since));
  }
}

/** A list whose elements stay with their people. */
class People {
  readonly list = make("ol", { class: "people" });
  readonly #items = new Map<string, Item>();

  constructor(private readonly kind: "holders" | "waiters") {}

  show(scene: Scene): void {
    const people = scene.message[this.kind].slice(0, MAX_WAITERS);
    const idOf = ({ key, revision }: Person): string => `${revision} ${key}`;
    const ids = new Set(people.map(idOf));
    for (const [id, { element }] of this.#items) {
      if (ids.has(id)) continue;
      element.remove();
      this.#items.delete(id);
    }
    for (const [n, person] of people.entries()) {
      const item = this.#items.get(idOf(person)) ?? (this.kind === "holders" ? new Holder() : new Waiter());
      this.#items.set(idOf(person), item);
      item.show(person, scene);
      const there = this.list.children[n];
      if (there !== item.element) this.list.insertBefore(item.element, there ?? null);
    }
  }
}

/** The spans of time that the picture may show, in seconds. */
const SPANS = [30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];
const MAX_LANES = 8;
const LANE = 24;
const BAR = 14;
const AXIS = 22;

interface View {
  readonly now: number;
  readonly width: number;
  /** The width of the names. */
  readonly label: number;
  readonly spanMs: number;
}

/** Draws the holds of a queue: a lane for each holder, time from left to right, a cross where a lease ended. */
function drawTimeline(svg: SVGSVGElement, history: readonly Past[], now: number): void {
  // The latest holders, by name: a lane stays where it is.
  const lanes = [...new Set(history.map(({ holder }) => holder).reverse())].slice(0, MAX_LANES).sort();
  const shownHolds = history.filter(({ holder }) => lanes.includes(holder));
  const width = Math.max(240, svg.clientWidth || 360);
  const label = Math.min(150, Math.round(width * 0.3));
  const view = { now, width, label, spanMs: spanOf(shownHolds, now) };
  const height = lanes.length * LANE + AXIS;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", String(height));
  svg.setAttribute("aria-label", summaryOf(history, view.spanMs));
  svg.replaceChildren(
    ...gridOf(view, height),
    ...lanes.flatMap((holder, lane) => [
      draw("text", { x: 0, y: lane * LANE + 16, class: "lane" }, cut(shown(holder), label)),
      ...shownHolds.filter((hold) => hold.holder === holder).flatMap((hold) => barOf(hold, lane, view)),
    ]),
  );
}

function spanOf(history: readonly Past[], now: number): number {
  const oldest = Math.min(now, ...history.map(({ from }) => from));
  const seconds = SPANS.find((span) => span * 1000 >= now - oldest) ?? SPANS.at(-1) ?? 0;
  // Of a long past, the latest holds matter.
  const latest = history.at(-6)?.from ?? oldest;
  const needed = SPANS.find((span) => span * 1000 >= now - latest) ?? seconds;
  return 1000 * Math.min(seconds, Math.max(needed, 60));
}

function gridOf({ width, label, spanMs }: View, height: number): SVGElement[] {
  const bottom = height - AXIS + 4;
  return [0, 1, 2, 3, 4].flatMap((n) => {
    const x = label + ((width - label - 1) * n) / 4;
    const anchor = n === 0 ? "start" : n === 4 ? "end" : "middle";
    const line = draw("line", { x1: x, x2: x, y1: 0, y2: bottom, class: "grid" });
    if (n % 2 === 1) return [line];
    const text = n === 4 ? "now" : `−${duration((spanMs * (4 - n)) / 4)}`;
    return [line, draw("text", { x, y: height - 4, "text-anchor": anchor }, text)];
  });
}

function barOf({ holder, from, to, end }: Past, lane: number, view: View): SVGElement[] {
  const scale = (view.width - view.label - 1) / view.spanMs;
  const at = (time: number): number => view.label + Math.max(0, view.spanMs - (view.now - time)) * scale;
  if ((to ?? view.now) < view.now - view.spanMs) return [];
  const [x, right, y] = [at(from), at(to ?? view.now), lane * LANE + 4];
  const look = `bar${to === null ? " present" : ""}${end === "lease ended" ? " lost" : ""}`;
  const box = { x, y, width: Math.max(2, right - x), height: BAR, rx: 3, class: look };
  const bar = draw("rect", box);
  const title = `${shown(holder)}: ${duration((to ?? view.now) - from)}${end === "lease ended" ? ", its lease ended" : ""}`;
  bar.append(draw("title", {}, title));
  if (end !== "lease ended") return [bar];
  const [cx, cy] = [Math.min(right, view.width - 6), y + BAR / 2];
  return [bar, draw("path", { class: "cross", d: `M${cx - 4} ${cy - 4}l8 8m0-8l-8 8` })];
}

function summaryOf(history: readonly Past[], spanMs: number): string {
  const lost = history.filter(({ end }) => end === "lease ended").length;
  const holders = new Set(history.map(({ holder }) => holder)).size;
  const what = `${count(history.length, "hold")} by ${count(holders, "holder")}, ${lost} of them ended with their lease`;
  return `Who held it in the last ${duration(spanMs)}: ${what}. The table below has the same as text.`;
}

/** About as many characters as fit. The end of `host:pid` tells more than its middle. */
function cut(text: string, width: number): string {
  const most = Math.floor(width / 7);
  if (text.length <= most) return text;
  return `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}`;
}

/** Rows of the history table. */
const MAX_PAST = 20;

function historyTable(body: HTMLElement): HTMLElement {
  const titles = ["Holder", "From", "For", "End"].map((title) => make("th", { scope: "col" }, title));
  const table = make("table", { class: "history" }, make("thead", {}, make("tr", {}, ...titles)), body);
  return make("details", {}, make("summary", {}, "As a table"), table);
}

/** The latest first. */
function showPast(body: HTMLElement, history: readonly Past[], now: number): void {
  const latest = history.slice(-MAX_PAST).reverse();
  while (body.children.length > latest.length) body.lastElementChild?.remove();
  for (const [n, { holder, from, fromIsJoin, to, end }] of latest.entries()) {
    const row =
      body.children[n] ??
      body.appendChild(
        make("tr", {}, make("th", { scope: "row" }, make("bdi")), make("td"), make("td"), make("td")),
      );
    const texts = [
      ...[shown(holder), `${fromIsJoin ? "joined " : ""}${timeOfDay(from)}`, duration((to ?? now) - from)],
      to === null ? "holds" : end === "unknown" || end === null ? "ended" : end,
    ];
    for (const [i, text] of texts.entries()) {
      const cell = row.children[i];
      if (cell) setText(cell.firstElementChild ?? cell, text);
    }
    row.lastElementChild?.classList.toggle("lost", end === "lease ended");
  }
}

let wanted: ReleaseRequest | undefined;

/** Asks the viewer, then the server. */
function askRelease(
  name: string,
  { key, owner, revision }: Person,
  { state, etcd }: { state: "holds" | "waits for"; etcd: string },
): void {
  wanted = { name, key, revision };
  const risk =
    state === "holds"
      ? "The next waiter gets it at once. A holder that is still at work learns of it, perhaps too late: check that it has ended, or that what it writes is fenced."
      : "It loses its place in the queue. A waiter of leasehold joins again, at the end.";
  setText(
    byId("confirm-text"),
    `${shown(owner ?? key)} ${state} ${shown(name)} in the etcd at ${etcd}.\n${risk}`,
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
