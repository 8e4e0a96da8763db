// A value that one process computes for all.
import { once as event, EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  ResultNotKeptError,
  RunFailedError,
  Session,
  share,
  type ShareOptions,
} from "../../../src/index.js";
import { meter } from "../../support/fixtures/spent.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(4);
const TTL = { ttlMs: 60_000 };
const never = (): never => {
  throw new Error("this must not be computed");
};

/** So many processes, as far as leasehold knows. */
async function processes(count: number, run: (clusters: readonly Cluster[]) => Promise<void>): Promise<void> {
  const clusters = Array.from({ length: count }, () =>
    connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: 4 } }),
  );
  try {
    await run(clusters);
  } finally {
    await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  }
}

const living = async (key: string): Promise<string[]> =>
  (await two.places(`/leasehold/once/${key}/`)).map((place) => place.key.split("//*")[1] ?? "").sort();

/** A computation that goes on until it is told to end. */
function slow<T>() {
  let end!: (value: T) => void;
  let fail!: (error: Error) => void;
  let begin!: () => void;
  const ended = new Promise<T>((resolve, reject) => ([end, fail] = [resolve, reject]));
  const begun = new Promise<void>((resolve) => (begin = resolve));
  return { begun, end, fail, compute: () => (begin(), ended) };
}

describe("share", () => {
  test("computes once for 100 calls in ten processes, and gives each the same value", () =>
    processes(10, async (clusters) => {
      let computed = 0;
      const compute = async () => ({ n: await Promise.resolve(++computed) });
      const calls = Array.from({ length: 100 }, (_, n) => share(clusters[n % 10]!, "crowd", compute, TTL));

      expect(await Promise.all(calls)).toEqual(calls.map(() => ({ n: 1 })));
      expect(computed).toBe(1);
      expect(await share(two.cluster, "crowd", never, TTL)).toEqual({ n: 1 });
    }));

  test("gives all who wait the error of the computation, and computes anew for later calls", () =>
    processes(3, async ([a, b, c]) => {
      const { begun, fail, compute } = slow<string>();
      const first = reasonOf(share(a!, "fails", compute, TTL));
      await begun;
      const watchers = await meter(two.etcd.member);
      const others = [b, c].map((cluster) => reasonOf(share(cluster!, "fails", never, TTL)));
      await expect.poll(async () => (await watchers.read())["Watch"]).toBe(2);
      const error = Object.assign(new Error("the rates are down"), { code: "ERATES" });
      fail(error);

      expect(await first).toBe(error);
      for (const other of await Promise.all(others)) {
        expect(other).toBeInstanceOf(RunFailedError);
        expect(other).toMatchObject({
          failure: { name: "Error", code: "ERATES", message: "the rates are down" },
        });
      }
      expect(await share(b!, "fails", () => "now", TTL)).toBe("now");
    }));

  test("passes the computation on when its process dies: to one of those who wait", () =>
    processes(4, async ([a, ...others]) => {
      const { begun, compute } = slow<string>();
      share(a!, "dies", compute, TTL).catch(() => undefined);
      await begun;
      let computed = 0;
      const waiting = others.map((cluster) => share(cluster, "dies", () => `computed ${++computed}`, TTL));
      const [holder] = await two.places("dies");
      await two.etcd.member.gateway("/v3/lease/revoke", { ID: String(holder!.leaseId) });

      expect(await Promise.all(waiting)).toEqual(["computed 1", "computed 1", "computed 1"]);
    }));

  test("costs one read for a fresh value, and none for further calls while that is under way", async () => {
    await share(two.cluster, "fresh", () => "value", TTL);
    const meterOf = await meter(two.etcd.member);
    const calls = Array.from({ length: 5 }, () => share(two.cluster, "fresh", never, TTL));

    expect(await Promise.all(calls)).toEqual(calls.map(() => "value"));
    // A session may be renewed meanwhile.
    expect({ ...(await meterOf.read()), LeaseKeepAlive: 0 }).toEqual({ Txn: 1, LeaseKeepAlive: 0 });
  });

  test("computes anew when the value has expired, and leaves no value behind", async () => {
    let computed = 0;
    const next = () => share(two.cluster, "expires", () => ++computed, { ttlMs: 2000 });
    expect([await next(), await next()]).toEqual([1, 1]);
    // That of the run says who computes.
    await expect.poll(() => living("expires"), { timeout: 20_000 }).toEqual(["run"]);

    expect(await next()).toBe(2);
  });

  test("gives the old value at once while one process computes the new one, and also when that fails", () =>
    processes(3, async ([a, b, c]) => {
      const options: ShareOptions = { ttlMs: 2000, staleMs: 60_000 };
      const failures = new EventEmitter();
      await share(a!, "stale", () => "old", options);
      expect(await living("stale")).toEqual(["fresh", "run", "value"]);
      await expect.poll(() => living("stale"), { timeout: 20_000 }).toEqual(["run", "value"]);

      const [failing, second] = [slow<string>(), slow<string>()];
      const onRefreshError = (error: unknown) => failures.emit("failed", error);
      expect(await share(a!, "stale", failing.compute, { ...options, onRefreshError })).toBe("old");
      await failing.begun;
      expect(await share(a!, "stale", never, options)).toBe("old");
      const failed = event(failures, "failed");
      failing.fail(new Error("down"));
      expect(await failed).toMatchObject([{ message: "down" }]);

      expect(await share(b!, "stale", second.compute, options)).toBe("old");
      await second.begun;
      expect(await share(c!, "stale", never, options)).toBe("old");
      second.end("new");
      await expect.poll(() => share(c!, "stale", never, options)).toBe("new");
    }));

  test("ends one caller's wait by its signal or time limit, and goes on for the others", async () => {
    const { begun, end, compute } = slow<string>();
    const stop = new AbortController();
    const calls = [
      share(two.cluster, "aborts", compute, { ...TTL, signal: stop.signal }),
      share(two.cluster, "aborts", never, { ...TTL, timeoutMs: 20 }),
      share(two.cluster, "aborts", never, TTL),
    ];
    const [aborted, late] = [reasonOf(calls[0]!), reasonOf(calls[1]!)];
    await begun;
    stop.abort(new Error("gone"));

    expect(await aborted).toMatchObject({ message: "gone" });
    expect(await late).toMatchObject({ code: "LOCK_TIMEOUT" });
    end("value");
    expect(await calls[2]).toBe("value");
  });

  test("forgets a wait that all of its callers have given up", () =>
    processes(2, async ([a, b]) => {
      const { begun, end, compute } = slow<string>();
      const first = share(a!, "given up", compute, TTL);
      await begun;
      const stop = new AbortController();
      const given = share(b!, "given up", never, { ...TTL, signal: stop.signal });
      stop.abort(new Error("gone"));
      const next = share(b!, "given up", never, TTL);

      expect(await reasonOf(given)).toMatchObject({ message: "gone" });
      end("value");
      expect([await first, await next]).toEqual(["value", "value"]);
    }));

  test("gives each caller a value of its own, and to none what another source, or another time, has asked for", async () => {
    const compute = () => ({ list: [1] });
    const [one, other] = await Promise.all([
      share(two.cluster, "own", compute, TTL),
      share(two.cluster, "own", compute, TTL),
    ]);
    one.list.push(2);
    expect(other).toEqual({ list: [1] });

    const { begun, end, compute: slowly } = slow<string>();
    const closed = reasonOf(share(two.session, "sources", slowly, TTL));
    await begun;
    const waits = share(two.cluster, "sources", () => "by another", TTL);
    const session = await Session.open(two.cluster, { ttlSeconds: 4 });
    const given = reasonOf(share(session, "sources", never, TTL));
    await session.close({ drainMs: 0 });
    expect(await given).toMatchObject({ code: "SESSION_CLOSED" });
    end("value");
    expect([await closed, await waits]).toEqual([undefined, "value"]);
  });

  test("gives nobody a value that is stale for him, whatever the others allow", async () => {
    await share(two.cluster, "strict", () => "old", { ttlMs: 2000, staleMs: 60_000 });
    await expect.poll(() => living("strict"), { timeout: 20_000 }).toEqual(["run", "value"]);

    expect(await share(two.cluster, "strict", () => "new", { ttlMs: 2000 })).toBe("new");
  });

  test("computes anew over a value that is none of ours", async () => {
    await two.etcd.etcdctl(["put", "/leasehold/once/garbage//*value", "{}"]);
    await two.etcd.etcdctl(["put", "/leasehold/once/garbage//*fresh", ""]);

    expect(await share(two.cluster, "garbage", () => "value", TTL)).toBe("value");
  });

  test.each(["{}", "no JSON", '{"state":"missed"}', '{"state":"odd"}'])(
    "computes over a run of unknown form: %s",
    async (run) => {
      await two.etcd.etcdctl(["put", `/leasehold/once/unknown/${run.length}//*run`, run]);

      expect(await share(two.cluster, `unknown/${run.length}`, () => "value", TTL)).toBe("value");
    },
  );

  test("computes anew over a value that is nested too deep to be copied", async () => {
    const [open, close] = ["[", "]"].map((each) => each.repeat(30_000));
    const value = `{"state":"done","result":{"json":${open}${close}}}`;
    await two.etcd.etcdctl(["put", "/leasehold/once/deep//*value", value]);
    await two.etcd.etcdctl(["put", "/leasehold/once/deep//*fresh", ""]);

    expect(await share(two.cluster, "deep", () => "value", TTL)).toBe("value");
  });

  test("refuses to wait for itself, and a value that can't be kept", async () => {
    const inside = share(two.cluster, "inside", () => share(two.cluster, "inside", never, TTL), TTL);
    expect(await reasonOf(inside)).toMatchObject({ code: "DEADLOCK" });
    expect(await reasonOf(share(two.cluster, "large", () => 1n, TTL))).toBeInstanceOf(ResultNotKeptError);
  });
});
