// Hand-made runs for the checker's own tests. Revisions and milliseconds are small numbers that a reader can follow.
import type { End, Leftovers, Nemesis, Run, ServerEvent, Setting, Sight, Step } from "../runner/history.js";

const LOCK = "lock/a";
const SETTING: Setting = { ttlSeconds: 2, locks: "lock/", registers: "reg/" };
const ns = (at: number) => BigInt(Math.round(at * 1e6));

interface Where {
  readonly lock?: string;
  /** Default: `${lock}/${p}`. */
  readonly key?: string;
}
interface Written {
  readonly token: number;
  readonly seq: number;
  readonly k?: "ok" | "fail" | "info";
  /** If this is given, the place is on the server. */
  readonly rev?: number;
  readonly told?: number;
  readonly write?: string;
  readonly asked?: boolean;
  readonly lock?: string;
}
type Left = Pick<Leftovers, "keys" | "leases" | "watches">;
type Hindrance = Partial<Pick<Nemesis, "sparesLeases" | "endsStreams" | "refuses">>;
type FaultOf = Pick<Nemesis, "fault" | "effect" | "target"> &
  Hindrance &
  Partial<Pick<Nemesis, "took" | "suspends">>;

interface Share {
  readonly permits: number;
  readonly weight: number;
}

/** Collects steps and server events in any order; `run()` sorts the steps by time. */
export class Story {
  readonly #steps: Step[] = [];
  readonly #server: ServerEvent[] = [];
  readonly #sights: Sight[] = [];
  readonly #created = new Map<string, bigint>();
  readonly #tokens = new Map<string, bigint>();

  /** Requests a lock and puts its place, which is observed half a millisecond later. */
  ask(
    at: number,
    p: string,
    id: number,
    rev: number,
    where: Where & { owner?: string; permits?: number; weighted?: Share; names?: string[] } = {},
  ): this {
    const { lock = LOCK, owner = `${p}/own`, key = `${lock}/${p}`, permits, weighted, names } = where;
    const asked = { lock, owner, ...(names && { names }), ...(weighted && { weight: weighted.weight }) };
    return this.call(at, p, id, asked).put(at, rev, key, {
      owner,
      permits,
      weighted,
    });
  }

  /** Like `ask()`, but nothing is on the server yet. */
  call(
    at: number,
    p: string,
    id: number,
    of: { lock?: string; owner?: string; names?: string[]; weight?: number } = {},
  ): this {
    const { lock = LOCK, owner = `${p}/own`, ...more } = of;
    return this.tell({ k: "invoke", f: "acquire", t: ns(at), p, id, lock, owner, ...more });
  }

  grant(
    at: number,
    p: string,
    id: number,
    token: number,
    where: Where & { held?: boolean; shared?: boolean } = {},
  ): this {
    const { lock = LOCK, key = `${lock}/${p}`, held = true, shared = false } = where;
    this.#tokens.set(`${p}#${id}`, BigInt(token));
    const of = { t: ns(at), p, id, lock, token: BigInt(token) };
    return this.tell({ k: "ok", f: "acquire", ...of, key, held, shared });
  }

  abort(at: number, p: string, id: number): this {
    return this.tell({ k: "abort", t: ns(at), p, id, lock: LOCK });
  }

  /** An acquire that was aborted, timed out, or lost its session. */
  giveUp(
    at: number,
    p: string,
    id: number,
    { err = "AbortError", turns }: { err?: string; turns?: number } = {},
  ) {
    const of = { t: ns(at), p, id, lock: LOCK, err };
    return this.tell({ k: "fail", f: "acquire", ...of, ...(turns !== undefined && { turns }) });
  }

  claim(at: number, p: string, id: number, token: number, held = true): this {
    return this.tell({ k: "claim", t: ns(at), p, id, lock: LOCK, token: BigInt(token), held });
  }

  /** A call in the async context of the hold has resolved with it. */
  enter(at: number, p: string, id: number, token: number, held: boolean): this {
    const of = { t: ns(at), p, id, lock: LOCK, token: BigInt(token) };
    return this.tell({ k: "claim", ...of, held, entered: true });
  }

  /** The reason of the hold's signal. `late`: `held` was false in an earlier turn. */
  end(at: number, p: string, id: number, reason: End["reason"], late = false): this {
    const token = this.#tokens.get(`${p}#${id}`) ?? 0n;
    return this.tell({ k: "end", t: ns(at), p, id, lock: LOCK, token, reason, ...(late && { late }) });
  }

  /** The holder listens for waiters. */
  asks(at: number, p: string, id: number, token: number): this {
    return this.tell({ k: "asks", t: ns(at), p, id, lock: LOCK, token: BigInt(token) });
  }

  wanted(at: number, p: string, id: number, token: number, key: string, rev: number): this {
    const of = { t: ns(at), p, id, lock: LOCK, token: BigInt(token) };
    return this.tell({ k: "wanted", ...of, key, rev: BigInt(rev) });
  }

  /** The process has got the answer that its place is created. */
  joined(at: number, p: string, rev: number, key: string): this {
    this.#sights.push({ t: ns(at), p, revision: BigInt(rev), put: [key] });
    return this;
  }

  /** A watch of the process has reported the deletion of a key. */
  heard(at: number, p: string, rev: number, key: string): this {
    this.#sights.push({ t: ns(at), p, revision: BigInt(rev), deleted: [key] });
    return this;
  }

  /** The process has got the answer to a read of a queue, for the place that was created at a revision. */
  saw(at: number, p: string, rev: number, created: number, found: Readonly<Record<string, number>>): this {
    const kvs = Object.entries(found).map(([key, create]) => ({ key, createRevision: BigInt(create) }));
    const of = { lease: undefined, key: `${LOCK}/`, end: `${LOCK}0` };
    const read = { ...of, maxCreateRevision: BigInt(created), found: kvs };
    this.#sights.push({ t: ns(at), p, revision: BigInt(rev), read });
    return this;
  }

  /** Calls for a release, whose deletion is revision `rev`, and records its completion. */
  release(
    at: number,
    p: string,
    id: number,
    rev: number,
    { lock = LOCK, key = `${lock}/${p}` }: Where = {},
  ): this {
    this.askRelease(at, p, id)
      .end(at, p, id, "released")
      .del(at + 1, rev, key);
    return this.released(at + 2, p, id);
  }

  /** A writer calls for a downgrade, whose put is revision `rev`. */
  downgrade(
    at: number,
    p: string,
    id: number,
    rev: number,
    { lock = LOCK, key = `${lock}/${p}` }: Where = {},
  ): this {
    const of = { f: "downgrade", p, id, lock } as const;
    this.tell({ k: "invoke", t: ns(at), ...of }).put(at + 1, rev, key, { owner: `${p}/own` });
    return this.tell({ k: "ok", t: ns(at + 2), ...of });
  }

  askRelease(at: number, p: string, id: number): this {
    return this.tell({ k: "invoke", f: "release", t: ns(at), p, id, lock: LOCK });
  }

  released(at: number, p: string, id: number, err?: string): this {
    const of = { f: "release", t: ns(at), p, id, lock: LOCK } as const;
    return this.tell(err === undefined ? { k: "ok", ...of } : { k: "fail", ...of, err });
  }

  /** A session was closed. */
  close(at: number, p: string, id: number): this {
    return this.tell({ k: "invoke", f: "close", t: ns(at), p, id, lock: "" });
  }

  /** A read of the register, answered at revision `rev`. */
  read(at: number, p: string, id: number, rev: number): this {
    return this.tell({ k: "ok", f: "read", t: ns(at), p, id, lock: LOCK, rev: BigInt(rev) });
  }

  /** A guarded write and its reported outcome. */
  write(at: number, p: string, id: number, what: Written): this {
    const { token, seq, k = "ok", rev, told = rev, write = `${p}#${id}/${seq}`, asked = true } = what;
    const { lock = LOCK } = what;
    const of = { f: "write", p, id, lock, write } as const;
    if (asked) {
      this.tell({ k: "invoke", t: ns(at), ...of });
      this.tell({ k, t: ns(at + 1), ...of, seq, ...(told !== undefined && { rev: BigInt(told) }) });
    }
    return rev === undefined ? this : this.put(at, rev, `reg/${lock}`, { token: String(token), seq, write });
  }

  fault(at: number, on: boolean, fault: FaultOf): this {
    return this.tell({ k: "nemesis", t: ns(at), p: "run", on, ...fault });
  }

  stopped(p: string, from: number, to?: number): this {
    return this.#lasting(from, to, { fault: "pause-worker", effect: "stops-worker", target: p });
  }

  suspended(p: string, from: number, to: number): this {
    const what = { fault: "suspend-holder", effect: "stops-worker", target: p, suspends: true } as const;
    return this.#lasting(from, to, what);
  }

  hindered(from: number, to: number, more: Hindrance = {}): this {
    return this.#lasting(from, to, { fault: "pause-member", effect: "hinders", target: "m1", ...more });
  }

  compacted(at: number): this {
    return this.#lasting(at, at, { fault: "compact", effect: "hinders", target: "100" });
  }

  killed(p: string, at: number): this {
    return this.#lasting(at, at, { fault: "kill-worker", effect: "kills-worker", target: p });
  }

  clockMoved(p: string, from: number, to: number): this {
    return this.#lasting(from, to, { fault: "clock-forth", effect: "moves-clock", target: p });
  }

  /** A key is deleted by hand; `answered` means that the revision of the deletion is known. */
  taken(at: number, rev: number, key: string, { target = key, answered = true } = {}): this {
    const took = answered ? [BigInt(rev)] : [];
    const fault = { fault: "delete-key", effect: "takes-place", target, took } as const;
    return this.#lasting(at, at, fault).del(at, rev, key);
  }

  stalled(at: number, p: string, ms: number): this {
    return this.tell({ k: "stall", t: ns(at), p, ms });
  }

  crash(at: number, p: string): this {
    return this.tell({ k: "crash", t: ns(at), p, event: "unhandledRejection", err: "Error: oh" });
  }

  leftovers(at: number, when: "idle" | "end", what: Partial<Left> = {}): this {
    return this.tell({ k: "leftovers", t: ns(at), p: "run", when, keys: [], leases: [], ...what });
  }

  put(at: number, rev: number, key: string, value: object): this {
    const create = this.#created.get(key) ?? BigInt(rev);
    this.#created.set(key, create);
    return this.#event(at, rev, { type: "PUT", key, create, value: JSON.stringify(value) });
  }

  del(at: number, rev: number, key: string): this {
    const create = this.#created.get(key) ?? 0n;
    this.#created.delete(key);
    return this.#event(at, rev, { type: "DELETE", key, create, value: "" });
  }

  /** etcd deletes the key with its lease, as the simulation records it. */
  expire(at: number, rev: number, key: string): this {
    this.del(at, rev, key);
    this.#server.push({ ...this.#server.pop()!, leaseEnded: true });
    return this;
  }

  run(setting: Partial<Setting> = {}): Run {
    const history = [...this.#steps].sort((a, b) => Number(a.t - b.t));
    const server = [...this.#server].sort((a, b) => Number(a.rev - b.rev));
    return { history, server, sights: this.#sights, setting: { ...SETTING, ...setting } };
  }

  /** The key's last part names the lease: "lock/a/w1" and "lock/b/w1-2" are places of lease "w1". */
  #event(at: number, rev: number, event: Pick<ServerEvent, "type" | "key" | "create" | "value">): this {
    const lease = (event.key.split("/").at(-1) ?? "").replace(/-\d+$/, "");
    this.#server.push({ rev: BigInt(rev), tSeen: ns(at + 0.5), lease, ...event });
    return this;
  }

  #lasting(from: number, to: number | undefined, fault: FaultOf): this {
    this.fault(from, true, fault);
    return to === undefined ? this : this.fault(to, false, fault);
  }

  /** Any other line. */
  tell(step: Step): this {
    this.#steps.push(step);
    return this;
  }
}

/** Two processes, one after the other, each with one write: a run without violations. */
export const goodStory = () =>
  new Story()
    .ask(0, "w1", 1, 10)
    .grant(2, "w1", 1, 10)
    .ask(5, "w2", 1, 11)
    .read(6, "w1", 1, 11)
    .claim(7, "w1", 1, 10)
    .write(7, "w1", 1, { token: 10, seq: 1, rev: 12 })
    .claim(20, "w1", 1, 10)
    .release(20, "w1", 1, 13)
    .grant(22, "w2", 1, 11)
    .read(23, "w2", 1, 13)
    .claim(24, "w2", 1, 11)
    .write(24, "w2", 1, { token: 11, seq: 2, rev: 14 })
    .claim(40, "w2", 1, 11)
    .release(40, "w2", 1, 15)
    .leftovers(50, "idle")
    .leftovers(60, "end");
