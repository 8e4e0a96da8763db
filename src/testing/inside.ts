// The members of an etcd inside this process, and what a test does behind the back of its clients: for `memoryEtcd`, whose clients are
// in this process too, and for `startDevEtcd`, whose clients come by TCP.
import type { SimEtcd } from "./memory/etcd.js";
import { createdAt, type KvAnswer, type KvRequest, type RangeResult, type TxnResult } from "./memory/kv.js";
import { isRefusal } from "./memory/protocol.js";
import type { EtcdTime } from "./memory/time.js";
import type { Applied } from "./memory/txn.js";
import { rangeOfPrefix } from "./memory/users.js";
import type { CutMode } from "./options.js";
import {
  asLeftovers,
  type Backdoor,
  type ClientLink,
  type Leftovers,
  type Member,
  type StartLimits,
} from "./running-etcd.js";

/** The etcd, its time, and its members. */
export interface Inside {
  readonly time: EtcdTime;
  readonly etcd: SimEtcd;
  readonly members: readonly InsideMember[];
  readonly history: { add(name: string, text: () => string): void };
}

/** How many changes of keys an etcd keeps at least; it compacts those before them. */
export const KEPT_CHANGES = 10_000;

/** The way of all clients to one member, which shows them what happens to it. */
export interface Way extends ClientLink {
  start(): Promise<void>;
  kill(): Promise<void>;
  pause(): void;
  resume(): void;
}

interface Place {
  readonly inside: Inside;
  readonly index: number;
}

export class InsideMember implements Member, ClientLink {
  readonly name: string;
  running = true;
  #paused = false;

  constructor(
    private readonly way: Way,
    private readonly place: Place,
  ) {
    this.name = nameOf(place.index);
  }

  get host(): string {
    return this.way.host;
  }

  get awake(): boolean {
    return this.running && !this.#paused;
  }

  async start({ signal, timeoutMs }: StartLimits): Promise<void> {
    const { inside, index } = this.place;
    this.#note("starts");
    this.running = true;
    inside.etcd.restart(index);
    await this.way.start();
    const { cluster } = inside.etcd;
    const answers = (): boolean => cluster === undefined || cluster.nodes[index]!.lead?.leading === true;
    if (await inside.time.until(answers, timeoutMs, signal ?? new AbortController().signal)) return;
    throw new Error(`etcd ${this.name} does not answer within ${timeoutMs} ms: it knows no leader`);
  }

  kill(): Promise<void> {
    if (!this.running) return Promise.resolve();
    this.#note("is killed");
    this.running = this.#paused = false;
    const killed = this.way.kill();
    this.place.inside.etcd.kill(this.place.index);
    return killed;
  }

  pause(): Promise<void> {
    if (this.awake) {
      this.#note("is paused");
      this.#paused = true;
      this.way.pause();
      this.place.inside.etcd.pause(this.place.index);
    }
    return Promise.resolve();
  }

  resume(): Promise<void> {
    if (this.#paused) {
      this.#note("runs again");
      this.#paused = false;
      this.place.inside.etcd.resume(this.place.index);
      this.way.resume();
    }
    return Promise.resolve();
  }

  cut(how: CutMode): void {
    this.#note(`has its link cut (${how})`);
    this.way.cut(how);
  }

  heal(): void {
    this.#note("has its link healed");
    this.way.heal();
  }

  async close(): Promise<void> {
    await this.kill();
    await this.way.close();
  }

  #note(what: string): void {
    this.place.inside.history.add(this.name, () => what);
  }
}

export const nameOf = (index: number): string => `m${index}`;

/** Requests of an administrator, past the links. */
export class InsideBackdoor implements Backdoor {
  constructor(
    private readonly inside: Inside,
    private readonly over: AbortSignal,
  ) {}

  async revoke(leaseId: bigint): Promise<void> {
    this.inside.history.add("  ", () => `the test revokes lease ${leaseId.toString(16)}`);
    const result = await this.#ask({ kind: "revoke", leaseId });
    if (isRefusal(result)) throw new Error(`etcd has no lease ${leaseId.toString(16)}`);
  }

  async remove(keys: readonly string[], revision: bigint): Promise<boolean> {
    this.inside.history.add("  ", () => `the test deletes ${keys.join(", ")}`);
    const compare = keys.map((key) => createdAt(key, revision));
    const success = keys.map((key) => ({ kind: "delete", key }) as const);
    return (await this.#askKv<TxnResult>({ kind: "txn", compare, success, failure: [] })).succeeded;
  }

  async keys(prefix: string): Promise<string[]> {
    const { key, end = "" } = rangeOfPrefix(prefix);
    const range = { key: Buffer.from(key, "latin1"), end: end === "" ? "\0" : Buffer.from(end, "latin1") };
    const { kvs } = await this.#askKv<RangeResult>({ kind: "range", ...range });
    return kvs.map((kv) => kv.key.toString());
  }

  async leftovers(): Promise<Leftovers> {
    const keys = await this.keys("");
    const { leases, watches } = this.inside.etcd;
    return asLeftovers({ keys, leases: leases.all.map(({ leaseId }) => leaseId), watches });
  }

  async leader(): Promise<number> {
    const { etcd, members } = this.inside;
    const find = (): number | undefined =>
      etcd.cluster ? etcd.cluster.leader?.node.index : members[0]!.awake ? 0 : undefined;
    await this.inside.time.until(() => find() !== undefined, LIMIT_MS, this.over);
    const found = find();
    if (found === undefined) throw new Error(`No member leads within ${LIMIT_MS} ms`);
    return found;
  }

  async #askKv<Answer extends KvAnswer>(request: KvRequest & { kind: Answer["kind"] }): Promise<Answer> {
    return ((await this.#ask({ kind: "kv", request })) as { kv: Answer }).kv;
  }

  async #ask(request: Applied): Promise<object> {
    const { etcd, members, time } = this.inside;
    const noneIsAwake = (): boolean => members.every(({ awake }) => !awake);
    let result: object | undefined;
    const ask = (): boolean => noneIsAwake() || (result = etcd.execute(request)) !== undefined;
    await time.until(ask, LIMIT_MS, this.over);
    if (result !== undefined) return result;
    throw new Error(
      `No answer of etcd: ${noneIsAwake() ? "every member is paused or killed" : "no member leads"}`,
    );
  }
}

const LIMIT_MS = 10_000;
