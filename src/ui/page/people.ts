import type { DetailMessage, Person } from "../protocol.js";
import { make, setAttribute, setText, shown } from "./dom.js";
import { duration } from "./format.js";
import { askRelease } from "./release.js";

/** Waiters in the document. */
export const MAX_WAITERS = 50;

const titleOf = ({ owner, key }: Person): string => shown(owner ?? key);

/** What a list of people needs besides the people. */
export interface Scene {
  readonly message: DetailMessage;
  readonly now: number;
  readonly mayRelease: boolean;
  readonly heldSince: (person: Person) => number | null;
}

abstract class Item {
  readonly element: HTMLElement;
  readonly #who = make("bdi", { class: "who" });
  protected readonly facts = make("span", { class: "facts" });
  readonly #button = make("button", { type: "button" }, "Release…");
  protected person: Person | undefined;
  #name = "";

  constructor(kind: "person" | "waiter", state: "holds" | "waits for") {
    this.element = make("li", { class: kind }, this.#who, this.facts, this.#button);
    this.#button.addEventListener("click", () => {
      if (this.person) askRelease(this.#name, this.person, state);
    });
  }

  show(person: Person, { message, mayRelease }: Scene): void {
    this.person = person;
    this.#name = message.name;
    setText(this.#who, titleOf(person));
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
    setText(this.facts, `${age}fence ${person.revision}`);
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
export class People {
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
