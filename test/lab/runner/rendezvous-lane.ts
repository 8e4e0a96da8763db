import type { Cluster, LatchCounter, Session } from "../../../src/index.js";
import type { Context } from "./context.js";
import type { Called, Returned } from "./history.js";
import { describe } from "./hold-log.js";
import { seeded, type Random } from "./random.js";

/** How many counts open the latch of a name, and how many members its double barrier has: by the number of the name. */
const TOTALS = [3, 1, 2, 4] as const;
const MEMBERS = [2, 3, 2, 1] as const;
/** Waits without a limit that a lane may have at a time. */
const MOST_WAITS = 4;
/** The share of callers that use another number than all others. */
const WRONG = 0.02;
/** Between two looks whether what waits at the end of a run has ended. */
const REPAIR_MS = 300;

/** What a call is given, as it is recorded. */
type Given = Omit<Called, "k" | "t" | "p" | "id" | "limitMs" | "quits">;
interface Limits {
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}
/** How a call may end without what it is for. */
interface Patience {
  readonly timeoutMs?: number;
  /** If none is given. */
  readonly defaultMs?: number;
  /** Its caller aborts it after that time. */
  readonly quitMs?: number;
  /** Its caller aborts it when the run ends. */
  readonly endsLast?: boolean;
}
interface Source {
  readonly source: Cluster | Session;
  readonly owner: string;
}

/** One caller of latches and barriers: it counts, waits, holds, enters and leaves, gives up, and loses its session. */
export class RendezvousLane {
  readonly #context: Context;
  readonly #random: Random;
  readonly #owner: string;
  readonly #waits = new Set<Promise<unknown>>();
  readonly #counters = new Set<LatchCounter>();
  /** Aborts what waits for others who may never come, at the end of the run. */
  readonly #last = new AbortController();
  #session: Session | undefined;
  #closed = false;

  constructor(context: Context, { n, seed }: { readonly n: number; readonly seed: string }) {
    this.#context = context;
    this.#random = seeded(seed);
    this.#owner = `${context.p}/${n}`;
  }

  async run(): Promise<void> {
    const { finishing, time, locks } = this.#context;
    while (!finishing()) {
      await this.#act(this.#random.between(0, locks.length - 1));
      await time.delay(this.#random.between(0, 100));
    }
    await this.#end();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#session?.close({ drainMs: 0 });
  }

  /** All that waits can end now: barriers are released, latches counted down, and nobody waits for members any more. */
  async #end(): Promise<void> {
    const { locks, time } = this.#context;
    await time.delay(this.#random.between(0, 2000));
    this.#last.abort();
    while (this.#waits.size > 0 && !this.#closed) {
      for (let n = 0; n < locks.length && this.#waits.size > 0 && !this.#closed; n++) await this.#free(n);
      await Promise.race([...this.#waits, time.delay(REPAIR_MS)]);
    }
    await Promise.all([...this.#counters].map((counter) => counter.leave()));
    for (let n = 0; n < locks.length; n++) await this.#release(n);
  }

  async #free(n: number): Promise<void> {
    await this.#release(n);
    const status = await this.#countDown(n);
    if (status === "COUNT_MISMATCH") await this.#reset(n);
  }

  async #act(n: number): Promise<void> {
    const random = this.#random;
    const act = random.pick([
      ...(["countDown", "countDown", "countDown", "wait", "wait", "wait", "count"] as const),
      ...(["enlist", "enlist", "reset", "reset", "hold", "hold", "release", "pass", "pass"] as const),
      ...(["meet", "meet", "meet", "close"] as const),
    ]);
    switch (act) {
      case "countDown":
        return this.#counts(n);
      case "wait":
        return this.#later(this.#wait(n));
      case "count":
        return void (await this.#count(n));
      case "enlist":
        return this.#enlist(n);
      case "reset":
        return random.chance(0.5) ? this.#reset(n) : undefined;
      case "hold":
        return this.#hold(n);
      case "release":
        return this.#release(n);
      case "pass":
        return this.#later(this.#pass(n));
      case "meet":
        return this.#later(this.#meet(n));
      case "close":
        if (random.chance(0.3)) await this.#session?.close({ drainMs: 0 });
    }
  }

  /** The cluster, or a session of its own, which it opens again when that is over. */
  async #source(): Promise<Source> {
    const { cluster, leasehold, ttlSeconds, releaseDelayMs, p } = this.#context;
    const shared = { source: cluster, owner: `${p}/shared` };
    if (this.#random.chance(0.3) || this.#closed) return shared;
    const isOpen = this.#session?.state === "live" || this.#session?.state === "jeopardy";
    if (!isOpen) {
      const options = { ttlSeconds, releaseDelayMs, owner: this.#owner, timeoutMs: 3000 };
      this.#session = await leasehold.Session.open(cluster, options).catch(() => undefined);
    }
    return this.#session ? { source: this.#session, owner: this.#owner } : shared;
  }

  #nameOf(n: number): string {
    return this.#context.locks[n] ?? "";
  }

  /** Now and then, a caller is wrong about the number. */
  async #latchOf(n: number) {
    const { source, owner } = await this.#source();
    const [lock, number] = [this.#nameOf(n), (TOTALS[n] ?? 2) + Number(this.#random.chance(WRONG))];
    const latch = new this.#context.leasehold.CountDownLatch(source, lock, number);
    return { latch, owner, of: { lock, number } };
  }

  async #barrierOf(n: number) {
    const { source, owner } = await this.#source();
    const lock = this.#nameOf(n);
    return { barrier: new this.#context.leasehold.Barrier(source, `${lock}/gate`), lock, owner };
  }

  /** Half of the calls end by themselves at the latest; so do all while many wait. */
  #patience(): Patience {
    const random = this.#random;
    const way = random.chance(0.5) || this.#waits.size >= MOST_WAITS ? random.pick(["time", "quit"]) : "none";
    if (way === "time") return { timeoutMs: random.between(1, random.chance(0.3) ? 20 : 4000) };
    return way === "quit" ? { quitMs: random.between(0, random.chance(0.3) ? 5 : 3000) } : {};
  }

  #later(call: Promise<unknown>): void {
    const waiting = call.finally(() => this.#waits.delete(waiting));
    this.#waits.add(waiting);
  }

  /** Some name what they count, and count it again when they don't know whether they have. */
  async #counts(n: number): Promise<void> {
    const random = this.#random;
    const own = `${this.#context.p}.${this.#context.nextId()}`;
    const item = random.pick([undefined, undefined, own, own, "a"]);
    const status = await this.#countDown(n, item, random.chance(0.3) ? this.#patience() : {});
    if (status !== "ok" && item !== undefined && random.chance(0.7)) await this.#countDown(n, item);
  }

  async #countDown(n: number, item?: string, patience: Patience = {}): Promise<string> {
    const { latch, of } = await this.#latchOf(n);
    const given = { f: "countDown", ...of, ...(item !== undefined && { item }) } as const;
    return this.#ask(given, { defaultMs: 5000, ...patience }, (limits) =>
      latch.countDown({ ...limits, id: item }),
    );
  }

  async #wait(n: number): Promise<void> {
    const { latch, of } = await this.#latchOf(n);
    const onCrash = this.#random.pick(["reject", "reject", "continue"] as const);
    await this.#ask({ f: "wait", ...of, onCrash }, this.#patience(), (limits) =>
      latch.wait({ ...limits, onCrash }),
    );
  }

  async #count(n: number): Promise<void> {
    const { latch, of } = await this.#latchOf(n);
    await this.#ask({ f: "count", ...of }, { defaultMs: 5000 }, (limits) => latch.count(limits));
  }

  async #reset(n: number): Promise<void> {
    const { latch, of } = await this.#latchOf(n);
    await this.#ask({ f: "reset", ...of }, { defaultMs: 5000 }, (limits) => latch.reset(limits));
  }

  /** Counts after a while, leaves, or forgets to; its session may end before. */
  async #enlist(n: number): Promise<void> {
    const { latch, owner, of: which } = await this.#latchOf(n);
    const given = { ...which, owner, of: this.#context.nextId() };
    let counter: LatchCounter | undefined;
    await this.#ask({ f: "enlist", ...given }, { defaultMs: 10_000 }, async (limits) => {
      counter = await latch.enlist(limits);
    });
    if (!counter) return;
    this.#counters.add(counter);
    this.#later(this.#work(counter, given));
  }

  async #work(counter: LatchCounter, given: Omit<Given, "f">): Promise<void> {
    const random = this.#random;
    await this.#context.time.delay(random.between(0, 600));
    const does = random.pick(["counter", "counter", "counter", "quit", "nothing"] as const);
    if (does === "nothing") return;
    if (does === "quit") return void (await this.#ask({ f: "quit", ...given }, {}, () => counter.leave()));
    for (let left = random.between(1, 2); left > 0; left--) {
      const status = await this.#ask({ f: "counter", ...given }, { defaultMs: 5000 }, (limits) =>
        counter.countDown(limits),
      );
      // It has no place any more, although nobody lets it leave.
      if (status === "ok" || status === "LATCH_BROKEN") this.#counters.delete(counter);
    }
  }

  async #hold(n: number): Promise<void> {
    const random = this.#random;
    const onCrash = random.pick(["stay", "break"] as const);
    const { barrier, lock, owner } = await this.#barrierOf(n);
    const patience = { defaultMs: 5000, ...(random.chance(0.2) && this.#patience()) };
    await this.#ask({ f: "hold", lock, owner, onCrash }, patience, (limits) =>
      barrier.hold({ ...limits, onCrash }),
    );
    await this.#context.time.delay(random.between(0, 400));
    if (random.chance(0.7)) await this.#release(n);
  }

  async #release(n: number): Promise<void> {
    const { barrier, lock } = await this.#barrierOf(n);
    await this.#ask({ f: "release", lock }, { defaultMs: 5000 }, (limits) => barrier.release(limits));
  }

  async #pass(n: number): Promise<void> {
    const { barrier, lock } = await this.#barrierOf(n);
    await this.#ask({ f: "pass", lock }, this.#patience(), (limits) => barrier.wait(limits));
  }

  /** Enters, and leaves after a while. Its process may die before that, or its session end. */
  async #meet(n: number): Promise<void> {
    const { leasehold, nextId, time } = this.#context;
    const random = this.#random;
    const { source, owner } = await this.#source();
    const [lock, number] = [this.#nameOf(n), (MEMBERS[n] ?? 2) + Number(random.chance(WRONG))];
    const barrier = new leasehold.DoubleBarrier(source, `${lock}/double`, number);
    const given = { lock, number, owner, of: nextId() };
    const crash = () => ({ onCrash: random.pick(["reject", "reject", "continue"] as const) });
    const [entering, leaving] = [crash(), crash()];
    const entered = await this.#ask(
      { f: "enter", ...given, ...entering },
      { ...this.#patience(), endsLast: true },
      (limits) => barrier.enter({ ...limits, ...entering }),
    );
    if (entered !== "ok") return;
    await time.delay(random.between(0, 300));
    await this.#ask(
      { f: "leave", ...given, ...leaving },
      random.chance(0.7) ? {} : this.#patience(),
      (limits) => barrier.leave({ ...limits, ...leaving }),
    );
  }

  /** Records a call and what its caller is told. Returns the status. */
  async #ask(
    given: Given,
    { timeoutMs, quitMs, defaultMs, endsLast = false }: Patience,
    call: (limits: Limits) => Promise<unknown>,
  ): Promise<string> {
    const { note, nextId, time } = this.#context;
    const step = { f: given.f, id: nextId(), lock: given.lock };
    const quit = new AbortController();
    const abort = (): void => {
      note({ k: "gave-up", ...step });
      quit.abort(Object.assign(new Error("the caller gives up"), { code: "GAVE_UP" }));
    };
    const cancel = quitMs === undefined ? undefined : time.after(quitMs, abort);
    const quits = cancel !== undefined || endsLast;
    if (endsLast) this.#last.signal.addEventListener("abort", abort);
    const limits = { ...(timeoutMs !== undefined && { timeoutMs }), ...(quits && { signal: quit.signal }) };
    const limitMs = timeoutMs ?? defaultMs;
    note({
      k: "called",
      ...given,
      ...step,
      ...(limitMs !== undefined && { limitMs }),
      ...(quits && { quits }),
    });
    try {
      if (endsLast && this.#last.signal.aborted) abort();
      const value = await call(limits);
      note({ k: "returned", ...step, status: "ok", ...numberOf(value) });
      return "ok";
    } catch (error) {
      note({ k: "returned", ...step, status: describe(error), ...deadIn(error) });
      return describe(error);
    } finally {
      cancel?.();
      this.#last.signal.removeEventListener("abort", abort);
    }
  }
}

const numberOf = (value: unknown): { readonly n?: number } =>
  typeof value === "number" || typeof value === "boolean" ? { n: Number(value) } : {};

/** What the error says of those that have died. */
function deadIn(error: unknown): Partial<Pick<Returned, "why" | "phase" | "owners">> {
  const { why, owner, owners, phase } = error as Partial<Broken>;
  const who = owners ?? (owner === undefined ? undefined : [owner]);
  return { ...(why && { why }), ...(phase && { phase }), ...(who && { owners: who.join() }) };
}

interface Broken {
  readonly why: string;
  readonly owner: string;
  readonly phase: string;
  readonly owners: readonly (string | undefined)[];
}
