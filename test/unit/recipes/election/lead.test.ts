import { describe, expect, test } from "vitest";
import { newCluster } from "../../../../src/lock/session/cluster.js";
import { EtcdRefusedError } from "../../../../src/errors.js";
import { LeaseNotFoundError, type Txn } from "../../../../src/etcd/port.js";
import { lead, type LeadOptions } from "../../../../src/recipes/election/lead.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { type FakeCall, type FakeWatch, keyValue } from "../../../support/fakes/fake-member.js";

/** An etcd with room for one candidate, which never waits. */
function lonelyEtcd(fake: FakeCluster): void {
  let revision = 100n;
  const own = { key: "", leaseId: 0n };
  const kv = () => keyValue({ ...own, createRevision: revision, modRevision: revision });
  const range = () => ({ kvs: [kv()], more: false, count: 1 });
  const answers: Partial<Record<FakeCall["method"], (request: unknown) => unknown>> = {
    grant: (request) => ({ header: HEADER, ...(request as object) }),
    revoke: () => undefined,
    range: () => ({ header: { ...HEADER, revision }, ...range() }),
    timeToLive: () => ({
      header: HEADER,
      leaseId: own.leaseId,
      ttlSeconds: 86_400,
      keys: [Buffer.from(own.key)],
    }),
    txn: (request) => {
      const { success } = request as Txn;
      revision++;
      for (const each of success) if (each.kind === "put") Object.assign(own, each);
      const ranges = success.map(({ kind }) => (kind === "range" ? range() : undefined));
      return { header: { ...HEADER, revision }, succeeded: true, ranges };
    },
  };
  fake.onCall = (call) => {
    const answer = answers[call.method];
    if (answer) call.answer(answer(call.request));
  };
}

test("after a term that ends by itself the next one begins 1 s later, then 2, 4 … 30 s, and 1 s after a long one", async () => {
  const fake = new FakeCluster();
  lonelyEtcd(fake);
  const cluster = newCluster(fake.state);
  const { clock } = fake;
  const stop = new AbortController();
  let termMs = 0;
  let ended = 0;
  const pauses: number[] = [];
  const work = async () => {
    if (ended > 0) pauses.push(Math.round((clock.monotonic() - ended) / 1000));
    if (termMs > 0) await new Promise<void>((resolve) => clock.after(termMs, resolve));
    ended = clock.monotonic();
  };

  const done = lead(cluster, "jobs", work, { ttlSeconds: 86_400, signal: stop.signal });
  const pass = async (count: number) => {
    for (let steps = 0; pauses.length < count && steps < 1000; steps++) await clock.pass(250);
  };
  await pass(7);
  termMs = 31_000;
  await pass(8);
  termMs = 0;
  await pass(11);
  stop.abort();
  await settle();
  await clock.pass(10_000);
  await done;

  expect(pauses.slice(0, 8)).toEqual([1, 2, 4, 8, 16, 30, 30, 30]);
  expect(pauses.slice(8, 11)).toEqual([1, 2, 4]);
});

type Retried = Parameters<NonNullable<LeadOptions["onRetry"]>>;
type Reason = EtcdRefusedError["reason"];

/** A candidate of a lonely etcd that rejects what `refuses` says. `terms` counts how often the candidate has led. */
function candidate(refuses: (call: FakeCall) => Error | undefined, options: LeadOptions = {}) {
  const fake = new FakeCluster();
  lonelyEtcd(fake);
  const { onCall } = fake;
  fake.onCall = (call, host) => {
    const error = refuses(call);
    if (error) call.fail(error);
    else onCall(call, host);
  };
  const cluster = newCluster(fake.state);
  const stop = new AbortController();
  const retries: Retried[] = [];
  const counted = { terms: 0, calls: () => fake.connected.flatMap(({ calls }) => calls).length };
  const work = () => {
    counted.terms++;
    return new Promise((resolve) => stop.signal.addEventListener("abort", resolve));
  };
  const onRetry = (...retried: Retried) => void retries.push(retried);
  const done = lead(cluster, "jobs", work, {
    ...{ ttlSeconds: 86_400, signal: stop.signal, onRetry },
    ...options,
  });
  done.catch(() => {});
  const end = async () => {
    stop.abort();
    await settle();
    await fake.clock.pass(20_000);
    await done;
  };
  return { fake, done, retries, counted, end, pass: (ms: number) => fake.clock.pass(ms) };
}

const refusal = (reason: string) => new EtcdRefusedError(reason as Reason, "a:1", `because of ${reason}`);
const delays = (retries: readonly Retried[]) => retries.map(([, delayMs]) => delayMs);
/** At random 0 a pause is three quarters of what it is on average. */
const GROWING = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].map((ms) => 0.75 * ms);
const SUM = GROWING.reduce((sum, ms) => sum + ms, 0);

describe("when etcd refuses a candidate", () => {
  test.each(["quota", "tls", "member"])(
    "for %s, it waits longer each time, says so, and leads",
    async (reason) => {
      let refusing = true;
      const it = candidate(({ method }) => (refusing && method === "grant" ? refusal(reason) : undefined));

      await it.pass(SUM - 1);
      expect(delays(it.retries)).toEqual(GROWING);
      expect(it.retries[0]![0]).toMatchObject({ code: "ETCD_REFUSED", reason });
      refusing = false;
      await it.pass(1);

      expect(it.counted.terms).toBe(1);
      await it.end();
    },
  );

  test.each(["permission", "unauthenticated", "other"])("for %s, it ends", async (reason) => {
    const it = candidate(({ method }) => (method === "txn" ? refusal(reason) : undefined));
    await it.pass(0);

    await expect(it.done).rejects.toMatchObject({ code: "ETCD_REFUSED", reason });
    expect(it.retries).toEqual([]);
  });

  test("it stops at once in a pause", async () => {
    const it = candidate(({ method }) => (method === "grant" ? refusal("quota") : undefined));
    await it.pass(3000);

    await it.end();

    expect(it.counted.terms).toBe(0);
  });
});

test("a candidate whose leases are all gone at once waits longer each time", async () => {
  const gone = new LeaseNotFoundError("etcdserver: requested lease not found");
  const it = candidate(({ method }) => (method === "txn" ? gone : undefined));

  await it.pass(SUM - 1);

  expect(delays(it.retries)).toEqual(GROWING);
  expect(it.retries.every(([error]) => error.code === "SESSION_LOST")).toBe(true);
  await it.end();
});

test("a candidate waits 1 s again after an attempt that took long", async () => {
  let refusing: "grant" | "txn" | undefined = "grant";
  const it = candidate(({ method }) => (method === refusing ? refusal("quota") : undefined));
  await it.pass(10_000);
  expect(delays(it.retries)).toEqual(GROWING.slice(0, 4));
  const { fake } = it;

  // No member answers.
  refusing = undefined;
  const { onCall } = fake;
  fake.onCall = () => {};
  await it.pass(1250 + 10_000 + 750 + 10_000);
  expect(delays(it.retries).slice(4)).toEqual([750, 750]);
  expect(it.retries.at(-1)![0].code).toBe("ETCD_UNAVAILABLE");
  fake.onCall = onCall;
  await it.end();
});

describe("when etcd refuses to be observed", () => {
  test.each(["permission", "member"])("for %s, it leads on, says so, and observes again", async (reason) => {
    let refusing = true;
    const heard: (string | undefined)[] = [];
    const it = candidate(
      ({ method, request }) => {
        const observes = method === "range" && (request as { end?: string }).end !== undefined;
        return refusing && observes ? refusal(reason) : undefined;
      },
      { onLeader: (leader) => heard.push(leader?.value) },
    );

    await it.pass(5000);
    expect(delays(it.retries)).toEqual(GROWING.slice(0, 3));
    expect(it.retries[0]![0]).toMatchObject({ code: "ETCD_REFUSED", reason });
    expect(it.counted.terms).toBe(1);
    expect(heard).toEqual([]);
    refusing = false;
    await it.pass(1000);

    expect(heard).toHaveLength(1);
    expect(it.counted.terms).toBe(1);
    await it.end();
  });

  test("it does not tell the same leader again", async () => {
    const heard: (string | undefined)[] = [];
    const it = candidate(() => undefined, { onLeader: (leader) => heard.push(leader?.value) });
    /** The answers given so far, by stream: etcd answers creates in their order. */
    const answered = new Map<FakeWatch, number>();
    const refused = async () => {
      const streams = it.fake.connected.flatMap(({ watches }) => watches).filter(({ closed }) => !closed);
      for (const stream of streams) {
        for (const { events } of stream.creates.slice(answered.get(stream)))
          stream.answer({ created: true, cancelled: events === "ALL", cancelReason: "permission denied" });
        answered.set(stream, stream.creates.length);
      }
      await it.pass(1000);
    };
    await it.pass(0);

    await refused();
    expect(heard).toEqual(["", expect.any(String)]);
    await refused();

    expect(delays(it.retries)).toEqual(GROWING.slice(0, 2));
    await it.pass(1000);
    expect(heard).toHaveLength(2);
    await it.end();
  });
});
