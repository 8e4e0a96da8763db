import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { servicesOf } from "../../../src/lock/session/cluster.js";
import type { Txn } from "../../../src/etcd/port.js";
import { type Cluster, connect, Session } from "../../../src/index.js";
import type { Lease } from "../../../src/lock/session/lease.js";
import { exclusive, lastEntries, whenEmpty } from "../../../src/lock/queue/lock-mode.js";
import { type JoinedEntry, QueueEntry } from "../../../src/lock/queue/entry.js";
import { joinTxn, leaveTxn, tryTxn } from "../../../src/lock/queue/txns.js";
import { leaseSourceOf } from "../../../src/lock/session/cluster.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { type Done, hasOrder, type Keys } from "../../support/clients/queue-history.js";
import { meter } from "../../support/fixtures/spent.js";

/** Names that conflict, and some that do not, which may share requests with the others. */
const NAMES = ["a", "a/b", "b", "a/b/c", "c", "d/a", "e"] as const;
const CALLERS = 3;
/** All orders of up to this many are tried. */
const MOST = 7;
const SEEDS = 3;
const SECONDS_EACH = 5;
const POLICY = { what: "test" };

let etcd: EtcdCluster;
let cluster: Cluster;
let leases: readonly Lease[];
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints, requestTimeoutMs: 20_000 });
  const open = () =>
    Session.open(cluster, { ttlSeconds: 3600 }).then((session) =>
      leaseSourceOf(session).lease({ signal: undefined, timeoutMs: undefined }),
    );
  leases = await Promise.all(Array.from({ length: CALLERS }, open));
}, 60_000);
afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

const call = fc.record({
  is: fc.constantFrom(
    "join",
    "join",
    "behind",
    "try",
    "try",
    "leave",
    "leave",
    "leave by value",
    "again",
    "read",
  ),
  name: fc.constantFrom(...NAMES),
  caller: fc.nat(CALLERS - 1),
  which: fc.nat(),
  /** Turns of the event loop before it is sent. */
  late: fc.constantFrom(0, 0, 0, 1, 2),
});
type Call = typeof call extends fc.Arbitrary<infer T> ? T : never;
const story = fc.array(fc.array(call, { minLength: 2, maxLength: MOST }), { minLength: 1, maxLength: 6 });

let stories = 0;
let sent = 0;

/** Calls on four names under a common root, in rounds; calls of one round are simultaneous. */
class Play {
  readonly #root = `story${++stories}`;
  readonly #entries: QueueEntry[] = [];
  #keys: Keys = new Map();
  #moment = 0;

  async round(calls: readonly Call[]): Promise<boolean> {
    const done = await Promise.all(calls.map((each) => this.#call(each)));
    const before = this.#keys;
    this.#keys = await this.#stored();
    return hasOrder(done, before, this.#keys);
  }

  async #call({ late, ...what }: Call): Promise<Done> {
    const txn = this.#txnOf(what);
    for (let turn = 0; turn < late; turn++) await new Promise((resolve) => setImmediate(resolve));
    const asked = ++this.#moment;
    sent++;
    const answer = await servicesOf(cluster).client.txn(txn, POLICY);
    return { txn, answer, asked, answered: ++this.#moment };
  }

  #txnOf({ is, name, caller, which }: Omit<Call, "late">): Txn {
    const old = this.#entries[which % this.#entries.length];
    const revision = (old && this.#keys.get(old.key)?.revision) ?? 0n;
    const known = old && new QueueEntry(old).confirmed(revision);
    const asked = known && which % 2 === 0 ? exclusive.readsForFirst(known) : [];
    if (is === "leave by value" && old) return leaveTxn(old, asked);
    if (is === "leave" && old) return leaveTxn(revision > 0n ? known! : old, asked);
    if (is === "again" && old) return joinTxn([old], exclusive.readsToJoin(old));
    // Without a revision, etcd would read all of them.
    if (is === "read" && known && revision > 0n) return readTxn(known);
    const entry = new QueueEntry({
      ...{ lease: leases[caller]!, mode: exclusive },
      ...{ name: `${this.#root}/${name}`, n: this.#entries.length + 1 },
    });
    this.#entries.push(entry);
    if (is === "try") return tryTxn([entry], whenEmpty);
    return joinTxn([entry], is === "behind" ? [] : exclusive.readsToJoin(entry));
  }

  async #stored(): Promise<Keys> {
    const range = { key: `${this.#root}/`, end: `${this.#root}0` };
    const { kvs } = await servicesOf(cluster).client.range(range, POLICY);
    return new Map(
      kvs.map(({ key, value, createRevision }) => [key.toString(), { value, revision: createRevision }]),
    );
  }
}

/** A waiter's read as a transaction, so that it can be batched like the others. */
const readTxn = (entry: JoinedEntry): Txn => ({
  queues: [entry.name],
  compare: [],
  success: [{ kind: "range", ...lastEntries(entry) }],
  failure: [],
});

const seeds = Array.from(
  { length: SEEDS },
  (_, n) => Number(process.env["LEASEHOLD_SEED"] ?? Date.now() % 1e6) + n,
);

test.each(seeds)(
  "transactions of one process are answered as if they had come one after the other, seed %i",
  { timeout: (SECONDS_EACH + 30) * 1000 },
  async (seed) => {
    const meterOf = await meter(etcd.member);
    const before = sent;
    const inSomeOrder = fc.asyncProperty(story, async (rounds) => {
      const play = new Play();
      for (const calls of rounds) if (!(await play.round(calls))) return false;
      return true;
    });

    await fc.assert(inSomeOrder, {
      seed,
      numRuns: 200,
      interruptAfterTimeLimit: SECONDS_EACH * 1000,
      endOnFailure: true,
    });

    const { Txn = 0 } = await meterOf.read();
    console.log(`seed ${seed}: ${sent - before} transactions in ${Txn} requests`);
    expect(sent - before).toBeGreaterThan(100);
    expect(Txn).toBeLessThan(0.95 * (sent - before));
  },
);
