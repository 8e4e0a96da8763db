// Whatever verdict of etcd's a member gives, to whatever method: no error of the library's own inside leaves a public call, and
// a verdict that etcd never gives to the method is no verdict, so the other member is asked.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Cluster,
  ClusterLockManager,
  connect,
  Election,
  forceRelease,
  inspect,
  isLeaseholdError,
  list,
  lockAll,
  Mutex,
  once,
  RwLock,
  Semaphore,
  Session,
} from "../../../src/index.js";
import { systemClock } from "../../../src/base/util/clock.js";
import { createCluster } from "../../../src/lock/session/connect.js";
import { message } from "../../support/clients/protobuf.js";
import { startRawServer, type RawServer } from "../../support/fakes/raw-server.js";
import { ToyEtcd } from "../../support/fakes/toy-etcd.js";
import { REFUSAL_ROWS, type RefusalRow } from "../../support/fixtures/refusal-rows.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

const METHODS = [
  ...["Txn", "Range", "LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "LeaseKeepAlive"],
  ...["Watch", "Authenticate"],
];
/** The methods that etcd gives a verdict to; any other one with a verdict that is not listed here. */
const GIVEN: Readonly<Record<string, readonly string[]>> = {
  lease: ["Txn", "LeaseRevoke"],
  "lease exists": ["LeaseGrant"],
  "auth off": ["Authenticate"],
};
const LIMIT = { timeoutMs: 5000 };

/** A call on a cluster whose first member refuses from `begin` on. */
type Call = (scene: Scene) => Promise<unknown>;
interface Scene {
  readonly name: string;
  readonly cluster: Cluster;
  /** Another client's, which is not refused. */
  readonly other: Cluster;
  readonly begin: () => void;
}

const taking =
  (take: (cluster: Cluster, name: string) => Promise<unknown>): Call =>
  async ({ cluster, name, begin }) => {
    await cluster.session();
    begin();
    await take(cluster, name);
  };

const CALLS: Readonly<Record<string, Call>> = {
  lock: taking((cluster, name) => new Mutex(cluster, name).lock(LIMIT)),
  withLock: taking((cluster, name) => new Mutex(cluster, name).withLock(() => undefined, LIMIT)),
  tryLock: taking((cluster, name) => new Mutex(cluster, name).tryLock(LIMIT)),
  readLock: taking((cluster, name) => new RwLock(cluster, name).readLock(LIMIT)),
  acquire: taking((cluster, name) => new Semaphore(cluster, name, 2).acquire(LIMIT)),
  tryAcquire: taking((cluster, name) => new Semaphore(cluster, name, 2).tryAcquire(LIMIT)),
  lockAll: taking((cluster, name) => lockAll(cluster, [name, `${name}-too`], LIMIT)),
  campaign: taking((cluster, name) => new Election(cluster, name).campaign("me", LIMIT)),
  once: taking((cluster, name) => once(cluster, name, 1, () => undefined, LIMIT)),
  request: taking((cluster, name) => new ClusterLockManager(cluster).request(name, () => undefined)),
  "a lock that waits": async ({ cluster, other, name, begin }) => {
    const held = await new Mutex(other, name).lock();
    await cluster.session();
    begin();
    const waiting = new Mutex(cluster, name).lock(LIMIT);
    waiting.catch(() => undefined);
    await expect
      .poll(() => toy.placesOf(name).length, { interval: 5, timeout: 500 })
      .not.toBe(1)
      .catch(() => {});
    await held.release();
    await waiting;
  },
  release: async ({ cluster, name, begin }) => {
    const lock = await new Mutex(cluster, name).lock();
    begin();
    await lock.release();
  },
  proclaim: async ({ cluster, name, begin }) => {
    const leadership = await new Election(cluster, name).campaign("me");
    begin();
    await leadership.proclaim("you");
  },
  session: ({ cluster, begin }) => {
    begin();
    return cluster.session(LIMIT);
  },
  open: ({ cluster, begin }) => {
    begin();
    return Session.open(cluster, LIMIT);
  },
  adopt: async ({ cluster, other, begin }) => {
    const leaseId = await (await Session.open(other)).orphan();
    begin();
    await Session.adopt(cluster, leaseId, LIMIT);
  },
  orphan: async ({ cluster, begin }) => {
    const session = await Session.open(cluster);
    begin();
    await session.orphan();
  },
  inspect: async ({ cluster, other, name, begin }) => {
    await new Mutex(other, name).lock();
    begin();
    await inspect(cluster, name, LIMIT);
  },
  list: ({ cluster, name, begin }) => {
    begin();
    return list(cluster, name, LIMIT);
  },
  forceRelease: async ({ cluster, other, name, begin }) => {
    await new Mutex(other, name).lock();
    const { holders } = await inspect(other, name);
    begin();
    await forceRelease(cluster, holders[0]!, LIMIT);
  },
  leader: async ({ cluster, name, begin }) => {
    begin();
    await new Election(cluster, name).leader(LIMIT);
  },
  observe: async ({ cluster, name, begin }) => {
    begin();
    const leaders = new Election(cluster, name).observe();
    await leaders.next();
    await leaders.return?.();
  },
  query: async ({ cluster, begin }) => {
    begin();
    await new ClusterLockManager(cluster).query();
  },
  close: async ({ cluster, begin }) => {
    await cluster.session();
    begin();
    await cluster.close({ drainMs: 0 });
  },
};

const toy = new ToyEtcd();
/** What the first member answers to the next calls of a method; not for ever, as a lost lease makes a call begin again. */
let refusal: { method: string; status: number; details: string; left: number } | undefined;
let servers: readonly RawServer[];
let other: Cluster;

beforeAll(async () => {
  const etcd = (call: Parameters<ToyEtcd["answer"]>[0]) =>
    call.method === "Authenticate" ? { messages: [message([[2, "token"]])] } : toy.answer(call);
  servers = [
    await startRawServer((call) =>
      refusal?.method === call.method && refusal.left-- > 0 ? refusal : etcd(call),
    ),
    await startRawServer(etcd),
  ];
  other = connect({ hosts: servers[1]!.endpoint });
});
afterAll(async () => {
  await other.close({ drainMs: 0 });
  await Promise.all(servers.map((server) => server.stop()));
  toy[Symbol.dispose]();
});

let scenes = 0;
/** What the call rejects with; undefined if it does not. */
async function outcome(call: Call, method: string, { text, codes }: RefusalRow): Promise<unknown> {
  const hosts = servers.map(({ endpoint }) => endpoint);
  const auth = method === "Authenticate" ? { auth: { username: "me", password: "secret" } } : {};
  // Calls start at the first host.
  const cluster = createCluster({ hosts, ...auth }, { clock: { ...systemClock, random: () => 0 } });
  const begin = () => void (refusal = { method, status: codes[0]!, details: `etcdserver: ${text}`, left: 3 });
  const error = await reasonOf(call({ name: `verdict-${scenes++}`, cluster, other, begin }));
  refusal = undefined;
  await cluster.close({ drainMs: 0 });
  return error;
}

/** One text for each verdict. */
const ROWS = [...new Map(REFUSAL_ROWS.map((row) => [row.verdict, row])).values()];

describe.each(ROWS)('"$text" ($verdict), from one of two members,', (row) => {
  test.each(METHODS)("to %s", async (method) => {
    const given = GIVEN[row.verdict];
    for (const [name, call] of Object.entries(CALLS)) {
      const error = await outcome(call, method, row);

      if (error !== undefined) expect([name, error, isLeaseholdError(error)]).toEqual([name, error, true]);
      if (given !== undefined && !given.includes(method)) expect([name, error]).toEqual([name, undefined]);
    }
  });
});
