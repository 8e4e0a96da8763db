import { describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  Election,
  lead,
  type Leadership,
  type LeadOptions,
} from "../../../src/index.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { abortOf, queued as joined } from "../../support/clients/session-client.js";
import { revoke, timeToLive } from "../../support/clients/lease-calls.js";

/** Longer than a process stands still on a busy machine. */
const TTL_SECONDS = 10;

const two = twoSessions(20);
const { places } = two;
/** Next to other tests, what takes a process milliseconds alone may take seconds. */
const PATIENCE = { timeout: 10_000 };
/** Waits until etcd has this many places under the name. */
const queued = (name: string, count: number) => joined(two.etcd.member, name, count);

/** A service with one candidate. `term()` is the next term that it leads; each works until the test ends it. */
function service(
  name: string,
  { cluster = two.cluster, ...options }: LeadOptions & { cluster?: Cluster } = {},
) {
  const stop = new AbortController();
  const begun: Term[] = [];
  let tell = () => {};
  const work = (leadership: Leadership) =>
    new Promise((resolve, reject) => {
      begun.push({ leadership, resolve: () => resolve(undefined), reject });
      tell();
    });
  const signal = stop.signal;
  const done = lead(cluster, name, work, { ttlSeconds: TTL_SECONDS, signal, ...options });
  done.catch(() => {});
  const term = async () => {
    for (;;) {
      const next = begun.shift();
      if (next) return next;
      await new Promise<void>((resolve) => (tell = resolve));
    }
  };
  const end = async () => {
    stop.abort();
    for (const { resolve } of begun) resolve();
    await done.catch(() => {});
  };
  return { stop, done, term, begun, [Symbol.asyncDispose]: end };
}

interface Term {
  readonly leadership: Leadership;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** Waits until its deadline has moved. */
async function renewed(leadership: Leadership): Promise<void> {
  let left = leadership.remainingMs();
  const rises = () => {
    const before = left;
    left = leadership.remainingMs();
    return left > before;
  };
  await expect.poll(rises, { ...PATIENCE, interval: 10 }).toBe(true);
}

const leaderOf = (name: string) => new Election(two.cluster, name).leader();
const deleteKey = (key: string) => two.etcd.etcdctl(["del", key]);
const leaseOf = async (name: string) => (await places(name))[0]!.leaseId;

test.each<[string, LeadOptions, { ttl: number; owner: string; keys: number }]>([
  ["inherits those of `connect({ session })`", {}, { ttl: 77, owner: "the service", keys: 2 }],
  [
    "has its own options before them",
    { ttlSeconds: 55, owner: "the leader", releaseDelayMs: 0 },
    { ttl: 55, owner: "the leader", keys: 1 },
  ],
])("the session of a service %s", async (how, options, { ttl, owner, keys }) => {
  const session = { ttlSeconds: 77, owner: "the service", releaseDelayMs: 1000 };
  await using cluster = connect({ hosts: two.etcd.endpoints, session });
  const name = `lead/session ${how}`;
  await using it = service(name, { cluster, ttlSeconds: undefined, ...options });
  const { leadership, resolve } = await it.term();
  const leader = await leaderOf(name);
  const { granted } = await timeToLive(two.etcd.member, leader!.leaseId);
  // The entry, and its delay key.
  const kept = await places(name);
  it.stop.abort();
  resolve();

  expect(leader).toMatchObject({ value: owner, fence: leadership.fence });
  expect(granted).toBe(ttl);
  expect(kept).toHaveLength(keys);
});

describe("a service that leads", () => {
  test("is stopped by its signal: its work ends by itself, renewed all the while, then it has resigned", async () => {
    const name = "lead/stop";
    await using it = service(name, { owner: "replica-1", ttlSeconds: 3 });
    const { leadership, resolve } = await it.term();
    expect((await leaderOf(name))?.value).toBe("replica-1");
    let settled = false;
    void it.done.then(() => (settled = true));

    it.stop.abort();
    for (let renewals = 0; renewals < 2; renewals++) await renewed(leadership);
    expect([leadership.held, leadership.signal.aborted, settled]).toEqual([true, false, false]);
    resolve();
    await it.done;

    expect(leadership.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(await places(name)).toEqual([]);
  });

  test.each([
    ["the signal's own reason", (signal: AbortSignal) => signal.reason as Error],
    ["an AbortError", () => new DOMException("stopped", "AbortError")],
  ])("is not failed by work that answers the stop with %s", async (what, errorOf) => {
    const name = `lead/stop-error/${what}`;
    await using it = service(name);
    const { reject } = await it.term();

    it.stop.abort(new Error("shutting down"));
    reject(errorOf(it.stop.signal));
    await it.done;

    expect(await places(name)).toEqual([]);
  });

  test("rejects with the error of its work after it has resigned, also after a stop", async () => {
    for (const stopped of [false, true]) {
      const name = `lead/throws/${stopped}`;
      await using it = service(name);
      const { leadership, reject } = await it.term();
      if (stopped) it.stop.abort();
      const failure = new Error("the work's own");

      reject(failure);

      expect(await reasonOf(it.done)).toBe(failure);
      expect(leadership.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
      expect(await places(name)).toEqual([]);
    }
  });

  test("rejects with an error that its work throws synchronously", async () => {
    const failure = new Error("at once");
    const work = () => {
      throw failure;
    };

    expect(await reasonOf(lead(two.cluster, "lead/throws/at-once", work))).toBe(failure);
  });

  test("resigns when its work is done, lets others lead, and campaigns again", async () => {
    const name = "lead/done";
    await using it = service(name, { value: "it" });
    const first = await it.term();
    await using other = service(name, { value: "other" });
    await queued(name, 2);

    first.resolve();
    const theirs = await other.term();
    await queued(name, 2);
    expect((await leaderOf(name))?.value).toBe("other");
    theirs.resolve();

    const second = await it.term();
    expect(second.leadership.fence).toBeGreaterThan(theirs.leadership.fence);
    second.resolve();
  });

  test.each([
    ["resolves", (term: Term) => term.resolve()],
    ["rejects", (term: Term) => term.reject(new Error("because of the loss"))],
  ] as const)(
    "and loses its key hears of it; its work %s, and only then it campaigns again",
    async (how, settle) => {
      const name = `lead/loss/${how}`;
      await using it = service(name);
      const first = await it.term();
      const rival = new Election(two.session, name).campaign("rival");
      await queued(name, 2);

      await deleteKey(first.leadership.key);
      expect(await abortOf(first.leadership.signal)).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
      const theirs = await rival;
      expect(await places(name)).toHaveLength(1);
      settle(first);
      await queued(name, 2);
      await theirs.resign();

      const second = await it.term();
      expect(second.leadership.fence).toBeGreaterThan(theirs.fence);
      second.resolve();
    },
  );

  test.each([
    ["its key", ({ key }: Leadership) => deleteKey(key)],
    ["its lease", async ({ name }: Leadership) => revoke(two.etcd.member, await leaseOf(name))],
  ])(
    "and loses %s before its session hears of it campaigns again, though its work threw",
    async (what, lose) => {
      const name = `lead/loss-unheard/${what}`;
      await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
      await using cluster = connect({ hosts: proxy.endpoint });
      await using it = service(name, { cluster });
      const first = await it.term();

      await proxy.mode("pause");
      await lose(first.leadership);
      expect(first.leadership.held).toBe(true);
      first.reject(new Error("lost the lock before the write"));
      await abortOf(first.leadership.signal);
      await proxy.mode("pass");

      const second = await it.term();
      expect(second.leadership.fence).toBeGreaterThan(first.leadership.fence);
      second.resolve();
    },
  );

  test.each(["leads", "campaigns"])("gets another session when its own is lost while it %s", async (when) => {
    const name = `lead/session/${when}`;
    const rival = when === "campaigns" ? await new Election(two.session, name).campaign("rival") : undefined;
    await using it = service(name);
    const first = rival ? undefined : await it.term();
    await queued(name, rival ? 2 : 1);
    const [lease] = (await places(name)).map(({ leaseId }) => leaseId).slice(-1);

    await revoke(two.etcd.member, lease!);
    if (first) await abortOf(first.leadership.signal);
    first?.resolve();
    await queued(name, rival ? 2 : 1);
    await rival?.resign();

    const second = await it.term();
    expect(await leaseOf(name)).not.toBe(lease);
    second.resolve();
  });
});

describe("a service that does not lead", () => {
  test("is stopped at once while it campaigns, and leaves no place", async () => {
    const name = "lead/waits";
    const rival = await new Election(two.session, name).campaign("rival");
    await using it = service(name);
    await queued(name, 2);

    it.stop.abort();
    await it.done;

    expect(await places(name)).toHaveLength(1);
    expect(it.begun).toEqual([]);
    await rival.resign();
  });

  test("is stopped at once in the pause after a term, and where the signal had aborted before", async () => {
    const name = "lead/pauses";
    await using it = service(name);
    (await it.term()).resolve();
    await queued(name, 0);

    it.stop.abort();
    await it.done;
    await lead(two.cluster, name, () => expect.fail("it was stopped"), { signal: AbortSignal.abort() });

    expect(await places(name)).toEqual([]);
  });

  test("keeps trying while etcd does not answer", async () => {
    const name = "lead/away";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await proxy.mode("refuse");
    await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 200 });
    await using it = service(name, { cluster });
    await reasonOf(new Election(cluster, name).leader({ timeoutMs: 500 }));

    await proxy.mode("pass");

    (await it.term()).resolve();
  });

  test("resolves when its cluster is closed while it campaigns, and says nothing of a retry", async () => {
    const name = "lead/closed";
    const rival = await new Election(two.session, name).campaign("rival");
    const cluster = connect({ hosts: two.etcd.endpoints });
    const retried: Error[] = [];
    await using it = service(name, { cluster, onRetry: (error) => retried.push(error) });
    await queued(name, 2);

    await cluster.close();

    await expect(it.done).resolves.toBeUndefined();
    expect(retried).toEqual([]);
    await rival.resign();
  });

  test("resolves when its cluster is closed while it leads, after its work, which leads until it ends", async () => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    await using it = service("lead/closed-leading", { cluster });
    const { leadership, resolve } = await it.term();

    const closed = cluster.close({ drainMs: 20_000 });
    const next = new Election(two.session, "lead/closed-leading").campaign("next");
    await queued("lead/closed-leading", 2);
    expect(leadership.held).toBe(true);
    resolve();

    await expect(it.done).resolves.toBeUndefined();
    await closed;
    await (await next).resign();
  });

  test("resolves when its cluster is closed in the pause between two terms", async () => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    await using it = service("lead/closed-pausing", { cluster });
    (await it.term()).resolve();
    await queued("lead/closed-pausing", 0);

    await cluster.close();

    await expect(it.done).resolves.toBeUndefined();
  });

  test("rejects with the error of its work while its cluster drains", async () => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    const failure = new Error("the work's own");
    const stopped = reasonOf(
      lead(cluster, "lead/closed-failing", async () => {
        void cluster.close({ drainMs: 20_000 });
        await Promise.reject(failure);
      }),
    );

    expect(await stopped).toBe(failure);
  });

  test("rejects with SessionClosedError on a cluster that was closed before", async () => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    await cluster.close();

    expect(await reasonOf(lead(cluster, "lead/closed-before", () => {}))).toMatchObject({
      code: "SESSION_CLOSED",
    });
  });
});

describe("`onLeader`", () => {
  test.each(["leads", "campaigns"])(
    "does not fail a service that is stopped while it %s, and whose cluster is closed then",
    async (when) => {
      const name = `lead/closed-after-stop/${when}`;
      const rival =
        when === "campaigns" ? await new Election(two.session, name).campaign("rival") : undefined;
      const cluster = connect({ hosts: two.etcd.endpoints });
      const heard: (string | undefined)[] = [];
      const retried: Error[] = [];
      const onLeader: LeadOptions["onLeader"] = (leader) => heard.push(leader?.value);
      await using it = service(name, { cluster, onLeader, onRetry: (error) => retried.push(error) });
      const term = rival ? undefined : await it.term();
      await expect.poll(() => heard.at(-1), PATIENCE).toBeDefined();

      it.stop.abort();
      const closed = cluster.close();
      term?.resolve();

      await expect(it.done).resolves.toBeUndefined();
      await closed;
      expect(retried).toEqual([]);
      await rival?.resign();
    },
  );

  test("gets every leader and every vacancy, not only its own", async () => {
    const name = "lead/hears";
    const heard: (string | undefined)[] = [];
    const rival = await new Election(two.session, name).campaign("rival");
    await using it = service(name, { value: "it", onLeader: (leader) => heard.push(leader?.value) });
    await expect.poll(() => heard, PATIENCE).toEqual(["rival"]);
    await queued(name, 2);
    await rival.resign();
    const { leadership, resolve } = await it.term();
    await expect.poll(() => heard, PATIENCE).toEqual(["rival", "it"]);
    await leadership.proclaim("it, busy");
    resolve();
    await queued(name, 0);
    const other = await new Election(two.session, name).campaign("other");
    await expect.poll(() => heard, PATIENCE).toEqual(["rival", "it", "it, busy", undefined, "other"]);
    await other.resign();

    (await it.term()).resolve();
    it.stop.abort();
    await it.done;
  });
});
