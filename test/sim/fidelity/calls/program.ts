// Random programs of users' calls. One seed gives one program, whose steps have the same outcomes on memoryEtcd() in virtual time
// and on a real etcd in real time: which calls were granted, which holds were lost and how, which errors there were, which keys are
// left. The order of what happens is determined: a step ends only when all of its effects have happened, timers included.
import { type Cluster, connect, forceRelease, inspect, Session } from "../../../../src/index.js";
import { Random } from "../../../../src/testing/memory/random.js";
import type { Losable } from "../../../../src/testing/start.js";
import { type Asked, FAMILIES, type Family, isSlow, type Leave, type Primitive } from "./primitives.js";

/**
 * What may happen in a program. "calm": nothing needs time. "timed": time limits, sessions that end, `lead`. "links": the links of
 * the program to etcd are cut, and sessions expire. "members": members are restarted, killed and suspended.
 */
export type Flavor = "calm" | "timed" | "links" | "members";

/** Something that happens to the members of an etcd. */
export interface Fault {
  readonly how: "restart" | "kill" | "blink";
  /** All of them without a number. */
  readonly member?: number;
}

/** Where a program runs. */
export interface World {
  /** Of each client: some know one member only. */
  readonly hosts: readonly string[];
  readonly prefix: string;
  /** Of etcd, past the links. */
  expire(session: Session): Promise<void>;
  lose(hold: Losable): Promise<void>;
  /** All keys with this prefix. */
  keys(prefix: string): Promise<readonly string[]>;
  cut(how: "silent" | "reset", member?: number): Promise<void>;
  heal(): Promise<void>;
  fault(fault: Fault): Promise<void>;
  /** Lets the real time pass of what nobody sees, such as an entry that is put and deleted because its call was aborted at once. */
  rest(ms: number): Promise<unknown>;
  /** Waits for a call of a user, and lets the time pass that it takes. */
  pass<T>(call: Promise<T>): Promise<T>;
  /**
   * Resolves with what `look` sees once the step has had its effects, which take at most so much virtual time. `look` ends early when it
   * sees something else than `expected`.
   */
  settle(look: (expected?: string) => Promise<string>, withinMs: number): Promise<string>;
}

export interface Plan {
  readonly seed: string;
  readonly flavor: Flavor;
  readonly members: 1 | 3;
  /** Before these steps; the programs of a group share them. */
  readonly faults: ReadonlyMap<number, Fault>;
  /** Called with the outcome of each step; the program ends when it returns false. */
  readonly ended: (what: string, outcome: string) => boolean;
}

const STEPS: Readonly<Record<Flavor, number>> = { calm: 16, timed: 12, links: 8, members: 12 };
const TTL_SECONDS: Readonly<Record<Flavor, number>> = { calm: 60, timed: 3, links: 6, members: 10 };
const CLIENTS = 3;
const LIMIT_MS = 1_000;
/**
 * What the effects of a step take at most: of a time limit, of a session that ends or a pause of `lead`, of an outage, after which
 * `lead` may pause for half a minute.
 */
const TIMED_MS = 8_000;
const SLOW_MS = 12_000;
const OUTAGE_MS = 50_000;
const REST_MS = 300;
/** Callers give up after 10 s, and the opening of a session that has begun just before goes on. */
const OPENING_MS = 21_000;

/** What is called if several calls would join again. */
const INSTEAD: Readonly<Record<string, string>> = { lead: "campaign", steal: "ifAvailable" };

/** A call that has begun. */
class Call {
  readonly abort = new AbortController();
  hold: Losable | undefined;
  over = false;
  /** It joins the queue again after an outage. */
  comesAgain = false;
  #leave: ((leave: Leave) => void) | undefined;

  constructor(
    readonly id: string,
    readonly kind: string,
  ) {}

  granted(hold: Losable): Promise<Leave> {
    this.hold = hold;
    return new Promise((resolve, reject) => {
      this.#leave = resolve;
      hold.signal.addEventListener("abort", () => reject(hold.signal.reason as Error));
    });
  }

  /** It leads again, perhaps. */
  ended(): void {
    this.hold = undefined;
  }

  leave(how: Leave): void {
    this.#leave?.(how);
  }
}

interface Client {
  readonly cluster: Cluster;
  readonly source: Cluster | Session;
}

/** One run of a program. */
class Run {
  readonly #random: Random;
  readonly #family: Family;
  readonly #clients: Client[] = [];
  readonly #calls: Call[] = [];
  readonly #fences = new Map<string, bigint>();
  readonly #over = new AbortController();
  #lines: string[] = [];
  #step = 0;
  #withinMs = 0;
  /** Some clients, or all of them, may not reach etcd. */
  #isCut = false;
  /** A session may be being opened, also when its caller has given up. */
  #opens = false;

  constructor(
    private readonly plan: Plan,
    private readonly world: World,
  ) {
    this.#random = new Random(plan.seed);
    this.#family = this.#random.pick(FAMILIES);
  }

  /** Mostly the same: they meet. */
  #pickFamily(): Family {
    return this.#random.chance(0.2) ? this.#random.pick(FAMILIES) : this.#family;
  }

  async play(): Promise<void> {
    try {
      if (!(await this.#did(await this.#open()))) return;
      for (; this.#step < STEPS[this.plan.flavor]; this.#step++) {
        const fault = this.plan.faults.get(this.#step);
        const what = fault ? await this.#fault(fault) : await this.#act();
        if (!(await this.#did(what))) return;
      }
      await this.#finish();
    } finally {
      await this.#close();
    }
  }

  async #open(): Promise<string> {
    const { world, plan } = this;
    const alone = plan.members === 3 && this.#random.chance(0.5);
    for (let n = 0; n < CLIENTS; n++) {
      const hosts = alone ? [world.hosts[n]!] : world.hosts;
      const session = { ttlSeconds: TTL_SECONDS[plan.flavor], owner: `c${n}` };
      const cluster = connect({ hosts, prefix: world.prefix, session });
      const owns = this.#random.chance(0.2);
      this.#clients.push({ cluster, source: cluster });
      if (owns) this.#clients[n] = { cluster, source: await world.pass(Session.open(cluster, session)) };
      else await world.pass(cluster.session());
    }
    return `clients of ${alone ? "one member each" : "all members"}`;
  }

  /** Whether the outcome is that of the run before. */
  async #did(what: string): Promise<boolean> {
    if (this.#isCut && this.#opens) await this.world.rest(OPENING_MS);
    this.#opens = false;
    const outcome = await this.world.settle((expected) => this.#look(expected), this.#withinMs);
    this.#withinMs = 0;
    this.#lines = [];
    return this.plan.ended(`${this.#step}. ${what}`, outcome);
  }

  /** What there is to see, by clients and in etcd. */
  async #look(expected?: string): Promise<string> {
    const { prefix } = this.world;
    const held = this.#held.filter(({ hold }) => (hold as { held?: boolean }).held ?? true);
    const local = [
      ...this.#lines.toSorted(),
      `clients: ${this.#clients.map(({ cluster }) => stateOf(cluster)).join("; ")}`,
      `held: ${held.map(({ id }) => id).join(" ")}`,
    ].join("\n");
    if (expected?.startsWith(local) === false) return local;
    const prefixes = [prefix, `/leasehold/once/${prefix}`];
    const [keys, marks] = await Promise.all(prefixes.map((each) => this.world.keys(each)));
    const names = new Map<string, number>();
    for (const key of keys!) {
      const name = key.slice(prefix.length, key.lastIndexOf("/"));
      names.set(name, (names.get(name) ?? 0) + 1);
    }
    return [
      local,
      `keys: ${[...names].map(([name, count]) => `${name} ${count}`).join(", ")}`,
      `marks: ${marks!.map((key) => key.slice(prefixes[1]!.length)).join(" ")}`,
    ].join("\n");
  }

  get #held(): readonly Call[] {
    return this.#calls.filter(({ hold, over }) => hold !== undefined && !over);
  }

  get #waiting(): readonly Call[] {
    return this.#calls.filter(({ hold, over }) => hold === undefined && !over);
  }

  #within(ms: number): void {
    this.#withinMs = Math.max(this.#withinMs, ms);
  }

  /** One step. */
  async #act(): Promise<string> {
    const random = this.#random;
    const { flavor } = this.plan;
    const draw = random.next();
    const client = random.int(CLIENTS);
    const [held, waiting] = [this.#held, this.#waiting];
    if (flavor !== "calm") this.#within(this.#isCut ? OUTAGE_MS : TIMED_MS);
    if (draw < 0.22 && held.length > 0) return this.#leave(random.pick(held), random.chance(0.2));
    if (draw < 0.3 && waiting.length > 0) return this.#abort(random.pick(waiting));
    if (draw < 0.36 && held.length > 0 && !this.#isCut) return this.#lose(random.pick(held));
    if (draw < 0.4 && !this.#isCut) return this.#release(client);
    if (draw < 0.43) return this.#close1(client);
    if (draw < 0.46) return this.#proclaim(held);
    if (draw < 0.56 && flavor !== "calm") return this.#end(client);
    if (draw < 0.7 && flavor === "links") return this.#cut();
    return this.#call(client);
  }

  async #call(client: number): Promise<string> {
    const random = this.#random;
    const { flavor } = this.plan;
    this.#opens = true;
    const { calls } = this.#pickFamily();
    const again = this.#calls.some(({ over, comesAgain }) => comesAgain && !over);
    const drawn = random.pick(Object.keys(calls).filter((each) => flavor !== "calm" || !isSlow(each)));
    // Two calls that join the queue again at the same time do so in any order.
    const kind = this.#waiting.length > 1 || again ? (INSTEAD[drawn] ?? drawn) : drawn;
    const name = random.pick(["a", "a", "b"]);
    const isTimed = flavor !== "calm";
    const timeoutMs = isTimed && random.chance(0.3) ? LIMIT_MS : undefined;
    const maxHoldMs = isTimed && random.chance(0.15) ? LIMIT_MS : undefined;
    const call = new Call(`${this.#step} ${kind} ${name} of c${client}`, kind);
    const { cluster, source } = this.#clients[client]!;
    const rejoin = source === cluster && random.chance(0.2) && !again;
    call.comesAgain = rejoin || isSlow(kind);
    this.#begin(call, calls[kind]!, {
      ...{ id: call.id, name, cluster, source, stop: this.#over.signal },
      wait: { signal: call.abort.signal, timeoutMs, rejoin },
      lock: { maxHoldMs },
      granted: (hold) => this.#granted(call, hold),
      note: (what) => this.#lines.push(`${call.id} ${what}`),
    });
    const atOnce = random.chance(0.05);
    if (atOnce) {
      call.abort.abort();
      await this.world.rest(REST_MS);
    }
    const limits = [timeoutMs && "timeoutMs", maxHoldMs && "maxHoldMs", rejoin && "rejoin"];
    return [call.id, ...limits.filter(Boolean), atOnce && "and abort"].filter(Boolean).join(", ");
  }

  #begin(call: Call, primitive: Primitive, asked: Asked): void {
    this.#calls.push(call);
    const end = (what: string): void => {
      call.over = true;
      this.#lines.push(`${call.id} ${what}`);
    };
    primitive(asked).then(
      (result) => end(`returns: ${String(result)}`),
      (error: unknown) => end(`throws: ${reasonOf(error)}`),
    );
  }

  #granted(call: Call, hold: Losable & { readonly fence?: bigint }): Promise<Leave> {
    const { id } = call;
    const key = (hold as { key?: string }).key ?? "";
    const queue = key.slice(0, key.lastIndexOf("/"));
    const isOld = hold.fence !== undefined && hold.fence <= (this.#fences.get(queue) ?? 0n);
    if (hold.fence !== undefined) this.#fences.set(queue, hold.fence);
    this.#lines.push(`${id} granted${isOld ? ", with an old fence" : ""}`);
    hold.signal.addEventListener("abort", () => {
      call.ended();
      // Which loss it is may follow a round trip later.
      this.#lines.push(`${id} ended: ${(hold.signal.reason as { code: string }).code}`);
    });
    return call.granted(hold);
  }

  #leave(call: Call, isError: boolean): string {
    if (isSlow(call.kind)) this.#within(SLOW_MS);
    call.leave(isError ? "throw" : "release");
    return `${isError ? "throw in" : "release"} ${call.id}`;
  }

  #abort({ id, abort }: Call): string {
    // It may have begun to open another session just before.
    this.#opens = true;
    abort.abort();
    return `abort ${id}`;
  }

  async #lose({ id, hold, kind }: Call): Promise<string> {
    if (isSlow(kind)) this.#within(SLOW_MS);
    await this.world.lose(hold!).catch((error: unknown) => this.#lines.push(reasonOf(error)));
    return `lose ${id}`;
  }

  /** Somebody ends the hold, or the wait, of another client. */
  async #release(client: number): Promise<string> {
    const name = this.#random.pick(this.#pickFamily().queues);
    // A waiter behind these may not notice for half a minute.
    const place = this.#random.int(2);
    // A hold without a waiter has its watch after half a second.
    this.#within(this.plan.flavor === "calm" ? TIMED_MS : SLOW_MS);
    const { cluster } = this.#clients[client]!;
    try {
      const { holders, waiters, kind } = await this.world.pass(inspect(cluster, name));
      const contenders = [...holders, ...waiters];
      const found = contenders[place % (contenders.length || 1)];
      this.#lines.push(`${kind}: ${contenders.map(({ owner, state }) => `${owner} ${state}`).join(", ")}`);
      if (found) await this.world.pass(forceRelease(cluster, found));
    } catch (error) {
      this.#lines.push(`rejected: ${reasonOf(error)}`);
    }
    return `force the release of number ${place} of ${name} by c${client}`;
  }

  async #close1(client: number): Promise<string> {
    if (this.plan.flavor !== "calm") this.#within(SLOW_MS);
    await this.#clients[client]!.cluster.close({ drainMs: 0 });
    return `close c${client}`;
  }

  async #proclaim(held: readonly Call[]): Promise<string> {
    const call = held.find(({ kind }) => kind === "campaign");
    const leadership = call?.hold as { proclaim?: (value: string) => Promise<void> } | undefined;
    const value = `value ${this.#step}`;
    const proclaimed = leadership?.proclaim?.(value) ?? Promise.resolve();
    await this.world.pass(proclaimed.catch((error: unknown) => this.#lines.push(reasonOf(error))));
    return `proclaim ${value} as ${call?.id}`;
  }

  /** A session ends: revoked behind its back, or closed. */
  async #end(client: number): Promise<string> {
    this.#within(SLOW_MS);
    this.#opens = true;
    const { source, cluster } = this.#clients[client]!;
    const revokes = this.#random.chance(0.6) && !this.#isCut;
    try {
      const session =
        source === cluster
          ? await this.world.pass(cluster.session({ timeoutMs: 1000 }))
          : (source as Session);
      if (revokes && !session.signal.aborted) await this.world.expire(session);
      else await this.world.pass(session.close({ drainMs: 0 }));
    } catch (error) {
      this.#lines.push(`rejected: ${reasonOf(error)}`);
    }
    return `${revokes ? "revoke" : "close"} the session of c${client}`;
  }

  async #cut(): Promise<string> {
    const { members } = this.plan;
    const how = this.#random.pick(["silent", "reset"] as const);
    const one = this.#random.int(members);
    const member = this.#random.chance(0.5) ? one : undefined;
    const isShort = this.#random.chance(0.3);
    this.#within(OUTAGE_MS);
    if (this.#isCut) {
      this.#isCut = false;
      await this.world.heal();
      await this.#reach();
      return "heal";
    }
    await this.world.cut(how, member);
    this.#isCut = !isShort;
    this.#opens = true;
    if (isShort) {
      await this.world.heal();
      await this.#reach();
    }
    return `cut the link to ${member ?? "all"} (${how})${isShort ? " and heal it" : ""}`;
  }

  /** All clients reach etcd again: the limits of the next calls are for them alone. */
  async #reach(): Promise<void> {
    for (const { cluster } of this.#clients) {
      const read = inspect(cluster, "nothing", { timeoutMs: OUTAGE_MS });
      await this.world.pass(read.catch((error: unknown) => this.#lines.push(reasonOf(error))));
    }
  }

  async #fault(fault: Fault): Promise<string> {
    this.#within(OUTAGE_MS);
    await this.world.fault(fault);
    this.#isCut = fault.how === "kill";
    if (!this.#isCut) await this.#reach();
    return `${fault.how} ${fault.member ?? "all"}`;
  }

  /** The program ends: what waits is aborted, then all clients are closed. */
  async #finish(): Promise<void> {
    if (this.plan.flavor !== "calm") this.#within(OUTAGE_MS);
    this.#over.abort();
    if (this.plan.flavor === "links") await this.world.heal();
    this.#isCut = false;
    for (const { abort } of this.#waiting) abort.abort();
    if (await this.#did("abort all that wait")) {
      for (const { cluster } of this.#clients) await cluster.close({ drainMs: 0 });
      if (this.plan.flavor !== "calm") this.#within(OUTAGE_MS);
      await this.#did("close all");
    }
  }

  async #close(): Promise<void> {
    this.#over.abort();
    for (const { abort } of this.#calls) abort.abort();
    await Promise.all(this.#clients.map(({ cluster }) => cluster.close({ drainMs: 0 })));
  }
}

/** Its sessions that are not over, its holds, its waits, and those of them that know their place: a call that does not yet may begin anew. */
function stateOf(cluster: Cluster): string {
  const { sessions, holds, waits } = cluster.snapshot();
  const open = sessions.filter(({ state }) => state === "live" || state === "jeopardy");
  const joined = waits.filter(({ revision }) => revision !== undefined);
  return [open, holds, waits, joined].map(({ length }) => length).join(" ");
}

/** An error's code, and how the hold was lost. */
function reasonOf(error: unknown): string {
  const { code, loss, name, message } = error as Record<"code" | "loss" | "name" | "message", unknown>;
  const what = typeof code === "string" ? code : name === "Error" ? message : name;
  return [what, loss ?? ""].join(" ").trim();
}

export function play(plan: Plan, world: World): Promise<void> {
  return new Run(plan, world).play();
}
