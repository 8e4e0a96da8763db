import type { DetailMessage, Past, Person, RunCounts } from "../protocol.js";
import { Connection } from "./connection.js";
import { announce, byId, count, duration, kindOf, make, number, setText, shown, timeOfDay } from "./dom.js";
import { People, permitsText, type Scene } from "./people.js";
import { ShardsByMember } from "./shards.js";
import type { Store } from "./store.js";
import { drawTimeline } from "./timeline.js";
import { Trend } from "./trend.js";

const LOCK = { free: "Free", holds: "Holds", waits: "Waiting, next one first" } as const;
const MEMBERS = { ...LOCK, free: "Nobody", holds: "Members" } as const;
const ELECTION = { free: "No leader", holds: "Leads", waits: "Candidates, next one first" } as const;

type Words = Readonly<Record<keyof typeof LOCK, string>>;

/** `total`: how many there are, listed or not. */
function headingOf(holders: readonly Person[], words: Words, total: number): string {
  if (total === 0) return words.free;
  if (holders[0]?.isDelay) return "The holder is dead";
  if (holders.length === total && holders.every(({ idle }) => idle)) return "Kept, idle";
  return holders.some(({ sticky }) => sticky) ? "Held or kept" : words.holds;
}

/** One queue, beside the table or in its place. */
export class Detail {
  readonly #section = byId("detail");
  readonly #title = make("h2", { id: "detail-title", tabindex: "-1" });
  readonly #sub = make("p", { class: "sub" });
  readonly #problem = make("p", { class: "problem", role: "status" });
  readonly #value = make("p", { class: "value" });
  readonly #runs = make("p", { class: "sub" });
  readonly #people = new People();
  readonly #heading = make("h3");
  readonly #waiting = make("h3");
  readonly #more = make("p", { class: "sub" });
  readonly #picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  readonly #legend = make(
    "p",
    { class: "sub" },
    "✕ the hold ended with its lease: its process lost the lease, or closed its session",
  );
  readonly #past = make("tbody");
  readonly #trend = new Trend();
  readonly #shards = new ShardsByMember();
  #connection: Connection | undefined;
  #message: DetailMessage | undefined;
  #name: string | undefined;

  constructor(private readonly store: Store) {
    const close = make("a", { class: "close", href: "#" }, "All queues");
    this.#picture.setAttribute("class", "picture");
    this.#picture.setAttribute("role", "img");
    this.#section.append(
      make("div", { class: "detail-top" }, this.#title, close),
      ...[
        this.#sub,
        this.#runs,
        this.#problem,
        this.#shards.element,
        this.#heading,
        this.#value,
        this.#people.holders,
      ],
      ...[
        make("h3", {}, "Hand-overs"),
        this.#trend.element,
        this.#picture,
        this.#legend,
        historyTable(this.#past),
      ],
      ...[this.#waiting, this.#people.waiters, this.#more],
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
    this.#show({
      ...blank,
      holders: [],
      waiters: [],
      total,
      history: [],
      perMinute: [],
      countedSince: this.store.handOvers.countedSince,
      shards: null,
      runs: null,
    });
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
    this.#value.hidden = message.value === null;
    setText(this.#value, shown(message.value ?? ""));
    this.#runs.hidden = message.runs === null;
    setText(this.#runs, message.runs ? runsText(message.runs) : "");
    this.#showHeadings(message, this.#people.show(scene));
    this.#trend.show(message, now);
    this.#shards.show(message, now);
    this.#legend.hidden = !history.some(({ end }) => end === "lease ended");
    drawTimeline(this.#picture, history, now);
    showPast(this.#past, history, now);
  }

  #showHeadings({ kind, total, holders, waiters }: DetailMessage, shownWaiters: number): void {
    const words = kind === "election" ? ELECTION : kind === "members" ? MEMBERS : LOCK;
    const permits = permitsText(holders, total.holders);
    setText(
      this.#sub,
      `${kindOf(kind)} · ${count(total.holders, "holder")}${permits}, ${count(total.waiters, "waiter")}`,
    );
    setText(this.#heading, headingOf(holders, words, total.holders));
    setText(this.#waiting, total.waiters === 0 ? "Nobody is waiting" : words.waits);
    const hidden = total.waiters - shownWaiters;
    setText(this.#more, hidden > 0 && waiters.length > 0 ? `and ${number(hidden)} more` : "");
  }
}

const RUNS = ["running", "done", "failed", "lost", "missed"] as const satisfies (keyof RunCounts)[];

function runsText(runs: RunCounts): string {
  const shown = RUNS.filter((state) => runs[state] > 0).map((state) => `${number(runs[state])} ${state}`);
  return `Runs of once: ${shown.join(", ")}`;
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
