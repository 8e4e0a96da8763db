import type { Row } from "../protocol.js";
import { byId, count, duration, kindOf, make, number, setAttribute, setText, shown } from "./dom.js";
import type { Store } from "./store.js";
import { Trend } from "./trend.js";

/** Rows in the document. */
const PAGE = 50;

const SHOWN: Readonly<Record<string, (row: Row) => boolean>> = {
  held: ({ holders }) => holders > 0,
  contended: ({ waiters }) => waiters > 0,
  lost: ({ losses }) => losses > 0,
  election: ({ kind }) => kind === "election",
};

const byName = (a: Row, b: Row): number => (a.name < b.name ? -1 : 1);

const ORDERS: Readonly<Record<string, (a: Row, b: Row) => number>> = {
  name: byName,
  waiters: (a, b) => b.waiters - a.waiters || byName(a, b),
  age: (a, b) => (a.since ?? Infinity) - (b.since ?? Infinity) || byName(a, b),
};

/** The elements of one row. */
class Line {
  // A card of a narrow window is no table for the browser: the roles say it.
  readonly row = make("tr", { role: "row" });
  readonly #link = make("a");
  readonly #tag = make("span", { class: "tag" });
  readonly #kind = make("td", { class: "kind", role: "cell" });
  readonly #holder = make("bdi");
  readonly #more = make("span", { class: "more" });
  readonly #age = make("td", { class: "number", role: "cell", "data-title": "held for" });
  readonly #waiters = make("span");
  readonly #load = make("span", { class: "load", "aria-hidden": "true" });

  constructor(name: string) {
    this.#link.href = hrefOf(name);
    this.#link.append(make("bdi", {}, shown(name)));
    const last = { class: "number", role: "cell", "data-title": "waiting" };
    const waiting = make("td", last, this.#waiters, this.#load);
    const holder = make("td", { class: "holder", role: "cell" }, this.#holder, this.#more);
    this.row.append(
      make("th", { scope: "row", role: "rowheader" }, this.#link, " ", this.#tag),
      this.#kind,
      holder,
      this.#age,
      waiting,
    );
  }

  show(row: Row, now: number, look: { readonly current: boolean; readonly most: number }): void {
    const { kind, holder, holders, waiters, losses, isDelay, sticky } = row;
    setText(this.#kind, kindOf(kind));
    const who = holder === null ? "free" : shown(holder);
    setText(this.#holder, isDelay ? `${who} is dead, soon free` : sticky ? `${who} (sticky)` : who);
    setText(this.#more, holders > 1 ? ` and ${number(holders - 1)} more` : "");
    setText(this.#waiters, number(waiters));
    setText(this.#tag, losses > 0 ? count(losses, "lease ended", "leases ended") : "");
    this.#tag.hidden = losses === 0;
    this.#load.style.width = `${Math.round((100 * waiters) / look.most)}%`;
    setAttribute(this.row, "data-free", holder === null ? "yes" : "no");
    setAttribute(this.row, "aria-current", String(look.current));
    this.tick(row, now);
  }

  tick({ since, holder, isDelay, sticky }: Row, now: number): void {
    const age = since === null || holder === null || isDelay ? "–" : duration(now - since);
    setText(this.#age, sticky && age !== "–" ? `<${age}` : age);
  }
}

export const hrefOf = (name: string): string => `#queue=${encodeURIComponent(name)}`;

/** The table of the overview: one page of what the search finds. */
export class Table {
  readonly #body = byId("rows");
  readonly #lines = new Map<string, Line>();
  readonly #trend = new Trend();
  #page = 0;
  /** The title of the document, while the rows are not old. */
  title = document.title;
  current: string | undefined;

  constructor(private readonly store: Store) {
    const again = (): void => {
      this.#page = 0;
      this.render();
    };
    byId("overview").insertBefore(this.#trend.element, byId("filter"));
    byId("filter").addEventListener("submit", (event) => event.preventDefault());
    byId("filter").addEventListener("input", again);
    byId("previous").addEventListener("click", () => this.#turn(-1));
    byId("next").addEventListener("click", () => this.#turn(1));
  }

  render(): void {
    const found = this.#found();
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.#page = Math.min(this.#page, pages - 1);
    const visible = found.slice(this.#page * PAGE, (this.#page + 1) * PAGE);
    this.#place(visible);
    this.#showPager(found.length, pages);
    this.#showFigures();
  }

  /** The ages, and the passing of minutes. */
  tick(): void {
    const now = this.store.now();
    this.#trend.show(this.store.handOvers, now);
    for (const [name, line] of this.#lines) {
      const row = this.store.rows.get(name);
      if (row) line.tick(row, now);
    }
  }

  #found(): Row[] {
    const text = byId<HTMLInputElement>("find").value.trim().toLowerCase();
    const show = SHOWN[byId<HTMLSelectElement>("show").value];
    const order = ORDERS[byId<HTMLSelectElement>("order").value] ?? ORDERS["waiters"];
    const has = ({ name, holder }: Row): boolean =>
      name.toLowerCase().includes(text) || (holder ?? "").toLowerCase().includes(text);
    return [...this.store.rows.values()].filter((row) => (show?.(row) ?? true) && has(row)).sort(order);
  }

  /** Keeps the elements of a row that is still there, and moves only what is out of place: the focus stays. */
  #place(rows: readonly Row[]): void {
    const names = new Set(rows.map(({ name }) => name));
    const focused = document.activeElement;
    for (const [name, line] of this.#lines) {
      if (names.has(name)) continue;
      line.row.remove();
      this.#lines.delete(name);
    }
    const now = this.store.now();
    const most = Math.max(1, ...rows.map(({ waiters }) => waiters));
    for (const [n, row] of rows.entries()) {
      const line = this.#lines.get(row.name) ?? new Line(row.name);
      this.#lines.set(row.name, line);
      line.show(row, now, { current: row.name === this.current, most });
      const there = this.#body.children[n];
      if (there !== line.row) this.#body.insertBefore(line.row, there ?? null);
    }
    if (focused instanceof HTMLElement && focused.isConnected && focused !== document.activeElement)
      focused.focus({ preventScroll: true });
  }

  #showPager(found: number, pages: number): void {
    const first = this.#page * PAGE + 1;
    const empty = byId("empty");
    byId("pager").hidden = pages === 1;
    byId("queues").hidden = found === 0;
    empty.hidden = found > 0 || !this.store.isFilled || this.store.problem !== null;
    setText(
      empty,
      this.store.rows.size === 0 ? "No lock is held, and nobody is waiting." : "Nothing matches.",
    );
    setText(
      byId("page"),
      `${number(first)}–${number(Math.min(found, first + PAGE - 1))} of ${number(found)}`,
    );
    byId<HTMLButtonElement>("previous").disabled = this.#page === 0;
    byId<HTMLButtonElement>("next").disabled = this.#page === pages - 1;
  }

  #showFigures(): void {
    const sums = { holding: 0, waiting: 0, free: 0, lost: 0 };
    for (const { holders, waiters, losses, isDelay } of this.store.rows.values()) {
      sums.holding += isDelay ? holders - 1 : holders;
      sums.free += holders > 0 ? 0 : 1;
      sums.waiting += waiters;
      sums.lost += losses;
    }
    for (const [id, sum] of Object.entries(sums)) setText(byId(id), number(sum));
    setAttribute(byId("lost").parentElement ?? byId("lost"), "data-any", sums.lost > 0 ? "yes" : "no");
    const etcd = this.store.hosts[0]?.replace(/^https?:\/\//, "") ?? "leasehold";
    this.title = `${number(sums.holding)} holding · ${shown(etcd)}`;
    this.#trend.show(this.store.handOvers, this.store.now());
  }

  #turn(by: number): void {
    this.#page += by;
    this.render();
    byId("queues").scrollIntoView({ block: "nearest" });
  }
}
