import { expect, test } from "vitest";
import { MarkLeases } from "../../../../src/recipes/once/mark-leases.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";

const DAY = { ms: 86_400_000, atLeast: true } as const;
const EIGHTH_MS = DAY.ms / 8;

/** The leases of one cluster, and the grants that it has asked for. */
function world() {
  const cluster = new FakeCluster();
  const { services } = cluster.lease();
  const leases = MarkLeases.of(services);
  const grants = () => cluster.member.of("grant");
  const grantedNext = async (): Promise<void> => {
    await settle();
    const grant = grants().at(-1)!;
    const { leaseId, ttlSeconds } = grant.request as {
      readonly leaseId: bigint;
      readonly ttlSeconds: number;
    };
    grant.answer({ header: cluster.member.header, leaseId, ttlSeconds });
    await settle();
  };
  const signal = new AbortController().signal;
  return { cluster, leases, grants, grantedNext, signal };
}

test("marks of an eighth of their time share a lease, which lasts for the time and that eighth", async () => {
  const { cluster, leases, grants, grantedNext, signal } = world();
  const both = Promise.all([leases.for([DAY], signal), leases.for([DAY], signal)]);
  await grantedNext();
  const [[first], [second]] = (await both) as [[bigint], [bigint]];
  cluster.clock.freeze(EIGHTH_MS - 1);
  const [third] = await leases.for([DAY], signal);
  cluster.clock.freeze(1);
  const next = leases.for([DAY], signal);
  await grantedNext();

  expect([second, third]).toEqual([first, first]);
  expect((await next)[0]).not.toBe(first);
  expect(grants().map(({ request }) => (request as { ttlSeconds: number }).ttlSeconds)).toEqual([
    97_200, 97_200,
  ]);
});

test("a lease has a thousand keys at most, as etcd deletes all of them at once", async () => {
  const { leases, grantedNext, signal } = world();
  const first = leases.for([DAY], signal);
  await grantedNext();
  for (let n = 1; n < 1000; n++) expect(await leases.for([DAY], signal)).toEqual(await first);
  leases.unused(await first);
  expect(await leases.for([DAY], signal)).toEqual(await first);
  expect(leases.has([DAY])).toBe(false);
  const next = leases.for([DAY], signal);
  await grantedNext();

  expect(await next).not.toEqual(await first);
  expect(leases.has([DAY])).toBe(true);
});

test("etcd goes on while the machine is suspended: a mark gets a lease of its own after that", async () => {
  const { cluster, leases, grantedNext, signal } = world();
  const before = leases.for([DAY], signal);
  await grantedNext();
  cluster.clock.sleep(EIGHTH_MS);
  const after = leases.for([DAY], signal);
  await grantedNext();

  expect(await after).not.toEqual(await before);
});

test("a short time has 5 s for the requests, and a longest time none", async () => {
  const { leases, grants, grantedNext, signal } = world();
  for (const lifetime of [
    { ms: 1000, atLeast: true },
    { ms: 2999, atLeast: false },
  ]) {
    const got = leases.for([lifetime], signal);
    await grantedNext();
    await got;
  }

  expect(grants().map(({ request }) => (request as { ttlSeconds: number }).ttlSeconds)).toEqual([6, 2]);
});

test("a lease whose grant was answered late is granted again, as its time has passed meanwhile", async () => {
  const { cluster, leases, grants, grantedNext, signal } = world();
  const got = leases.for([{ ms: 1000, atLeast: true }], signal);
  await settle();
  const late = grants()[0]!.request as { readonly leaseId: bigint };
  cluster.clock.freeze(4000);
  await grantedNext();
  expect(grants()).toHaveLength(2);
  await grantedNext();

  expect(await got).not.toEqual([late.leaseId]);
});

test("an abort ends the wait of one call, and the grant goes on for the others", async () => {
  const { leases, grants, grantedNext, signal } = world();
  const stop = new AbortController();
  const given = leases.for([DAY], stop.signal).catch((error: unknown) => error);
  const other = leases.for([DAY], signal);
  stop.abort(new Error("gone"));

  expect(await given).toMatchObject({ message: "gone" });
  await grantedNext();
  expect(await other).toHaveLength(1);
  expect(grants()).toHaveLength(1);
});

test("a lease that etcd has no longer is not given out again", async () => {
  const { leases, grantedNext, signal } = world();
  const first = leases.for([DAY], signal);
  await grantedNext();
  leases.forget(await first);
  const second = leases.for([DAY], signal);
  await grantedNext();

  expect(await second).not.toEqual(await first);
});

/** The times of the leases that were granted for these marks, in seconds. */
async function grantedFor(lifetimes: readonly { readonly ms: number; readonly atLeast: boolean }[]) {
  const { leases, grants, grantedNext, signal } = world();
  for (const each of lifetimes) {
    const isThere = leases.has([each]);
    const got = leases.for([each], signal);
    if (!isThere) await grantedNext();
    await got;
  }
  return grants().map(({ request }) => (request as { ttlSeconds: number }).ttlSeconds);
}

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;

test("times that are near each other share leases: rounded up if they are shortest ones, and down otherwise", async () => {
  const times = [HOUR_MS, HOUR_MS + 1, HOUR_MS + 4 * MINUTE_MS, HOUR_MS + 5 * MINUTE_MS];

  expect(await grantedFor(times.map((ms) => ({ ms, atLeast: true })))).toEqual([4050, 4388]);
  expect(await grantedFor(times.map((ms) => ({ ms, atLeast: false })))).toEqual([3600, 3900]);
});

test.each([1000, 2000, 90_000, 600_000, HOUR_MS, DAY.ms, 7 * DAY.ms, 30 * DAY.ms, 366 * DAY.ms])(
  "%i ms are a step, and the next one is an eighth longer at most",
  async (ms) => {
    expect(await grantedFor([{ ms, atLeast: false }])).toEqual([ms / 1000]);
    const longer = Math.max(ms * 1.125, ms + 1000);
    const [ttlSeconds = 0] = await grantedFor([{ ms: ms + 1, atLeast: true }]);
    expect(ttlSeconds * 1000).toBeLessThanOrEqual(Math.max(longer * 1.125, longer + 5000) + 1000);
  },
);
