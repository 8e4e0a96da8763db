import type { Guardian } from "../../support/servers/guarded.js";
import { now } from "../runner/journal.js";
import { Client, type Wait } from "./client.js";
import { PREFIX, type Ground, type Heal } from "./grounds/ground.js";
import type { Hold } from "./hold.js";
import type { Effect, Line } from "./line.js";
import { untilTrue, within } from "./patience.js";
import { StallClock } from "./stall-clock.js";
import { STAGE } from "./rules/stalls.js";
import { Store } from "./store.js";
import type { Subject } from "./subjects/subjects.js";

export const TTL_SECONDS = 2;
export const TTL_MS = TTL_SECONDS * 1000;
/** Twice the TTL and five seconds: a free lock must find a new holder within this time. */
export const PATIENCE_MS = 2 * TTL_MS + 5000;
/** The time limit of an acquire if the scenario is not about time limits. */
const ASK_MS = 3 * PATIENCE_MS;

export interface Breakage {
  readonly fault: string;
  readonly effect: Effect;
  readonly hits: readonly string[] | "all";
}

export interface StageOptions {
  readonly subject: Subject;
  readonly ground: Ground;
  readonly guardian: Guardian;
}

/** Where a scenario is played: one subject, its own servers, clients, and the record of all that happens. */
export class Stage<G extends Ground = Ground> {
  readonly lines: Line[] = [];
  readonly store = new Store();
  readonly subject: Subject;
  readonly ground: G;
  readonly name = `${PREFIX}n1`;
  readonly #guardian: Guardian;
  readonly #clients: Client[] = [];
  readonly #heals = new Set<() => Promise<void>>();
  readonly #waits: Wait[] = [];
  readonly #clock = new StallClock((ms) => this.note({ k: "stall", t: now(), p: STAGE, ms }));

  constructor({ subject, ground, guardian }: StageOptions & { ground: G }) {
    this.subject = subject;
    this.ground = ground;
    this.#guardian = guardian;
  }

  /** The clients that are alive. */
  get clients(): readonly Client[] {
    return this.#clients.filter(({ ended }) => !ended);
  }

  /** Clients that have used the subject once, so that connections and sessions exist. */
  async start(): Promise<readonly [Client, Client, Client]> {
    return Promise.all([this.#warm("w1.0"), this.#warm("w2.0"), this.#warm("w3.0")]);
  }

  /** A new process that replaces one that was killed. */
  restart({ p }: Client): Promise<Client> {
    const [, name, life] = /^(.*)\.(\d+)$/.exec(p) ?? [];
    return this.#launch(`${name}.${Number(life) + 1}`);
  }

  ask(client: Client, { name = this.name, timeoutMs = ASK_MS } = {}): Wait {
    const wait = client.ask(name, timeoutMs);
    this.#waits.push(wait);
    return wait;
  }

  /** For a scenario that cannot begin without a holder. */
  async acquire(client: Client, { name = this.name } = {}): Promise<Hold> {
    const hold = await within(PATIENCE_MS, this.ask(client, { name }).hold);
    if (hold === undefined) throw new Error(`${client.p} did not get a lock that nobody else wanted`);
    return hold;
  }

  /** The first of the waiters to be granted; undefined if none is granted in time. */
  first(waits: readonly Wait[], ms = PATIENCE_MS): Promise<Hold | undefined> {
    const granted = waits.map(({ hold }) => hold.then((it) => it ?? Promise.reject(new Error("refused"))));
    return within(
      ms,
      Promise.any(granted).catch(() => undefined),
    );
  }

  /**
   * Each waiter or holder uses the lock once more and releases it, until all have finished; false if it ended because
   * none made progress.
   */
  async serve(waits: readonly Wait[] = this.#waits): Promise<boolean> {
    const left = new Map<Wait, Promise<unknown>>();
    for (const wait of waits)
      left.set(
        wait,
        turn(wait).then(() => left.delete(wait)),
      );
    while (left.size > 0) {
      const before = left.size;
      await within(PATIENCE_MS, Promise.race(left.values()));
      if (left.size === before) return false;
    }
    return true;
  }

  /**
   * Breaks something and returns the function that heals it. Whatever the scenario leaves broken is healed at its end.
   */
  async inflict(
    breakage: Breakage,
    act: () => Promise<Heal | void> | Heal | void,
  ): Promise<() => Promise<void>> {
    const begun = now();
    this.note({ k: "fault", t: begun, p: STAGE, on: true, ...breakage });
    const undo = await act();
    const heal = async () => {
      if (!this.#heals.delete(heal)) return;
      await undo?.();
      this.note({ k: "fault", t: now(), p: STAGE, on: false, ...breakage });
    };
    this.#heals.add(heal);
    return heal;
  }

  note(line: Line): void {
    this.lines.push(line);
  }

  /** Everything is healed, remaining waiters are served, one client requests anew, and all close: what is left then? */
  async settle(): Promise<void> {
    for (const heal of [...this.#heals]) await heal();
    const served = (await this.serve()) && (await this.#probe());
    // If a key kept every client out, it has been left for long enough.
    await this.#left("idle", served ? PATIENCE_MS : 0);
    await Promise.all(this.clients.map((client) => this.#close(client)));
    await this.#left("closed", PATIENCE_MS);
  }

  async #probe(): Promise<boolean> {
    const [client] = this.clients;
    return client === undefined || this.serve([this.ask(client, { timeoutMs: PATIENCE_MS })]);
  }

  async stop(): Promise<void> {
    this.#clock.stop();
    await Promise.all(this.#clients.map((client) => client.kill()));
  }

  async #close(client: Client): Promise<void> {
    client.note({ k: "close" });
    const closed = await within(
      PATIENCE_MS,
      client.close().then(() => true),
    );
    if (closed === undefined) client.note({ k: "crash", err: "close did not resolve" });
  }

  /** Locks of killed clients expire with their TTL, at the latest after an election, which restarts it. */
  async #left(when: "idle" | "closed", patienceMs: number): Promise<void> {
    let keys: string[] = [];
    await untilTrue(patienceMs, async () => (keys = await this.ground.keys()).length === 0);
    this.note({ k: "left", t: now(), p: STAGE, when, keys });
  }

  async #warm(p: string): Promise<Client> {
    const client = await this.#launch(p);
    const hold = await this.acquire(client, { name: `${PREFIX}warm-${p}` });
    await hold.release();
    return client;
  }

  async #launch(p: string): Promise<Client> {
    const links = await this.ground.open();
    const { addresses } = links;
    const command = await this.subject.command({ addresses, ttlSeconds: TTL_SECONDS });
    const note = (line: object) => this.note(line as Line);
    const client = new Client({
      ...{ p, links, command, note },
      ...{ store: this.store, guardian: this.#guardian },
    });
    this.#clients.push(client);
    await client.ready();
    return client;
  }
}

async function turn({ hold: granted }: Wait): Promise<void> {
  const hold = await granted;
  if (hold === undefined || hold.over) return;
  await hold.increment();
  await within(PATIENCE_MS, hold.release());
}
