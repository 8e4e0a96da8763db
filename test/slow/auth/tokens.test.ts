import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { makeJwtArgs } from "../../support/fixtures/jwt.js";
import { untilLeaseExpires } from "../../support/clients/lease-yardstick.js";
import { ROOT, startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const TTL_SECONDS = 5;
const SESSIONS = 4;
/** Every session waits under every name. */
const NAMES = 5;
const WAITERS = 100;

const times = <T>(count: number, make: (i: number) => T) => Array.from({ length: count }, (_, i) => make(i));
const rising = (fences: readonly bigint[]) => fences.every((fence, i) => i === 0 || fence > fences[i - 1]!);

/** The two kinds of tokens: use extends the lifetime of the first kind, but not of the second. */
const KINDS = [
  {
    kind: "simple",
    lifeSeconds: 1,
    settings: Promise.resolve({ args: ["--auth-token-ttl=1"], remove: async () => {} }),
  },
  { kind: "JWT", lifeSeconds: 2, settings: makeJwtArgs({ ttlSeconds: 2 }) },
] as const;

describe.each(KINDS)("when a token ($kind) expires in the middle", ({ kind, lifeSeconds, settings }) => {
  let etcd: UserEtcd;

  beforeAll(async () => void (etcd = await startWithUsers({ args: (await settings).args })), 60_000);
  afterAll(async () => {
    await etcd?.stop();
    await (await settings).remove();
  });

  /** A client like a separate process, with its own connection, on which its logins are counted. */
  async function open() {
    const proxy = await startGrpcProxy({ port: etcd.etcd.member.clientPort });
    const cluster = connect({ hosts: proxy.endpoint, auth: WORKER });
    const opening = times(SESSIONS, () => Session.open(cluster, { ttlSeconds: TTL_SECONDS }));
    const sessions = await Promise.all(opening);
    const states: string[] = [];
    for (const each of sessions) each.addEventListener("statechange", ({ state }) => states.push(state));
    const logins = () => proxy.count("/etcdserverpb.Auth/Authenticate");
    const stop = async () => {
      await cluster.close();
      await proxy.stop();
    };
    return { sessions, states, logins, [Symbol.asyncDispose]: stop };
  }

  /** On etcd's own clock. */
  const until = (seconds: number) =>
    untilLeaseExpires(etcd.etcd, seconds, [`--user=${ROOT.username}:${ROOT.password}`]);

  /** Per token lifetime since `start`, once for all calls and once for the stream of all watches. */
  function allowed(start: number) {
    const lives = kind === "JWT" ? Math.ceil((performance.now() - start) / (1000 * (lifeSeconds - 1))) : 0;
    return 2 * (1 + lives);
  }

  test("what is held is held on, and a hundred waiters are handed over in order after a login or two", async () => {
    await using crowd = await open();
    const mutex = (i: number) => new Mutex(crowd.sessions[i % SESSIONS]!, `jobs/wait/${i % NAMES}`);
    const held = await Promise.all(times(NAMES, (i) => mutex(i).lock()));
    const fences = new Map(held.map(({ name, fence }) => [name, [fence]]));
    const waiting = times(WAITERS, (i) =>
      mutex(i).withLock(({ name, fence }) => void fences.get(name)?.push(fence)),
    );
    const queued = expect.poll(() => etcd.keysUnder("jobs/wait/"), { timeout: 10_000 });
    await queued.toHaveLength(NAMES + WAITERS);
    const first = crowd.logins();

    // A simple token expires a second or two after its last use. From etcd 3.6 on, a renewal may count as a use.
    await until(TTL_SECONDS);
    const start = performance.now();
    const before = crowd.logins();
    const stillHeld = held.map((lock) => lock.held);
    await Promise.all(held.map((lock) => lock.release()));
    await Promise.all(waiting);
    const logins = crowd.logins() - before;

    expect(stillHeld).toEqual(times(NAMES, () => true));
    const served = [...fences.values()];
    expect(served.map(({ length }) => length)).toEqual(times(NAMES, () => 1 + WAITERS / NAMES));
    expect(served.every(rising)).toBe(true);
    // A simple token that the session's own calls have used often enough is still valid.
    if (kind === "JWT") expect(crowd.logins()).toBeGreaterThan(first);
    expect(logins).toBeLessThanOrEqual(allowed(start));
    expect([crowd.states, await etcd.keysUnder("jobs/wait/")]).toEqual([[], []]);
  });

  test("callers that never pause are served on and on, with a login a life", async () => {
    await using crowd = await open();
    const start = performance.now();
    let over = false;
    const busy = times(3 * SESSIONS, async (i) => {
      const mutex = new Mutex(crowd.sessions[i % SESSIONS]!, `jobs/busy/${i % 3}`);
      const fences: bigint[] = [];
      while (!over) fences.push(await mutex.withLock(({ fence }) => fence));
      return fences;
    });

    await until(2 * lifeSeconds);
    over = true;
    const served = await Promise.all(busy);

    expect(served.every((fences) => fences.length > 0 && rising(fences))).toBe(true);
    expect(crowd.logins()).toBeLessThanOrEqual(allowed(start));
    expect(crowd.states).toEqual([]);
  });
});
