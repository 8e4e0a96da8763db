import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../src/errors.js";
import type { StartThread, ThreadHandlers } from "../../../src/session/renewal-worker.js";
import { type RenewalOrder, type SharedPulse, SharedRenewal } from "../../../src/session/shared-renewal.js";
import { makeAuthority } from "../../support/fixtures/certificates.js";
import { FakeCluster, LEASE_ID } from "../../support/fakes/fake-connection.js";

const TTL_SECONDS = 10;
const TTL_MS = TTL_SECONDS * 1000;

/** What the fake clock that counts suspend is ahead of the monotonic one. */
const AHEAD_MS = 6_000_000;

type Keep = Extract<RenewalOrder, { do: "keep" }>;

/** The other thread, as far as it is told. */
class FakeThread {
  readonly orders: RenewalOrder[] = [];
  terminated = false;
  hear: () => void = () => undefined;

  constructor(
    readonly pulse: SharedPulse,
    readonly handlers: ThreadHandlers,
  ) {}

  get kept(): readonly Keep[] {
    return this.orders.filter((order) => order.do === "keep");
  }

  /** A renewal that was sent at `monotonic` is accepted. Without a message, as long as `tell` was not called. */
  renewed(monotonic: number) {
    const sent = { monotonic, suspend: monotonic + AHEAD_MS };
    for (const { memory } of this.kept) new SharedRenewal(memory).write(sent, TTL_MS);
    const news = { leaseId: LEASE_ID, sent, ttlSeconds: TTL_SECONDS, host: "a:1" };
    return { tell: () => this.handlers.news({ is: "renewed", ...news }) };
  }
}

function world(options: Readonly<Record<string, unknown>> = {}) {
  const threads: FakeThread[] = [];
  const failing = { starts: false };
  const start: StartThread = ({ pulse, handlers }) => {
    if (failing.starts) throw new Error("no thread");
    const thread = new FakeThread(pulse, handlers);
    threads.push(thread);
    return {
      post: (order) => void thread.orders.push(order),
      hear: () => thread.hear(),
      terminate: () => void (thread.terminated = true),
    };
  };
  const cluster = new FakeCluster({ renewal: "worker", ...options }, start);
  return { cluster, clock: cluster.clock, threads, failing };
}

describe("a lease that another thread renews", () => {
  test("is held by what is in memory, before any message", () => {
    const { cluster, clock, threads } = world();
    const lease = cluster.lease(TTL_SECONDS);
    const thread = threads[0]!;
    // As in a loop: the time passes, and no timer runs.
    const later = clock.monotonic() + 2 * TTL_MS;
    thread.renewed(later - 1000);
    clock.freeze(2 * TTL_MS);

    expect(lease.over).toBe(false);
    expect(lease.remainingMs()).toBeCloseTo(0.9 * TTL_MS - 1000, 0);
  });

  test("is lost at its deadline if nothing is in memory, with the stall as the reason", () => {
    const { cluster, clock } = world();
    const lease = cluster.lease(TTL_SECONDS);
    clock.freeze(2 * TTL_MS);

    expect(lease.over).toBe(true);
    expect(String(lease.signal.reason)).toMatch(/renews no more after maxStallMs \(10000\)/);
  });

  test("is lost at its deadline after thousands of messages that nobody has read", () => {
    const { cluster, clock, threads } = world();
    const lease = cluster.lease(TTL_SECONDS);
    const thread = threads[0]!;
    let unread = 20_000;
    thread.hear = () => {
      while (unread-- > 0) thread.renewed(clock.monotonic() - 2 * TTL_MS).tell();
    };
    clock.freeze(4 * TTL_MS);

    expect(lease.over).toBe(true);
    expect(lease.signal.reason).toMatchObject({ loss: "expired" });
  });

  test("is lost at once if etcd has no such lease", () => {
    const { cluster, threads } = world();
    const lease = cluster.lease(TTL_SECONDS);
    new SharedRenewal(threads[0]!.kept[0]!.memory).end();

    expect(lease.over).toBe(true);
    expect(lease.signal.reason).toMatchObject({ loss: "revoked" });
  });

  test("is lost with what the thread has found", () => {
    const { cluster, clock, threads } = world();
    const lease = cluster.lease(TTL_SECONDS);
    const { handlers } = threads[0]!;
    const refusal = { reason: "permission", host: "a:1", details: "etcdserver: permission denied" } as const;
    handlers.news({ is: "failing", failures: [["b:1", "no answer in time"]] });
    handlers.news({ is: "refused", leaseId: LEASE_ID, ...refusal });
    for (let n = 0; n < TTL_SECONDS; n++) clock.advance(1000);

    const { reason } = lease.signal as { readonly reason: Error & { members: unknown } };
    expect(reason.cause).toBeInstanceOf(EtcdRefusedError);
    expect(reason.members).toEqual(
      new Map([["b:1", expect.objectContaining({ message: "no answer in time" })]]),
    );
  });

  test("is waited for by who needs a renewal that was sent since", async () => {
    const { cluster, clock, threads } = world();
    const lease = cluster.lease(TTL_SECONDS);
    const renewed = lease.renewNow();
    expect(threads[0]!.orders.at(-1)).toMatchObject({ do: "renew", leaseId: LEASE_ID });
    threads[0]!.renewed(clock.monotonic()).tell();

    await expect(renewed).resolves.toBeUndefined();
  });
});

describe("the thread", () => {
  test("gets a beat while there is a lease, four of them in maxStallMs", () => {
    const { cluster, clock, threads } = world({ maxStallMs: 2000 });
    cluster.lease(TTL_SECONDS);
    const { pulse } = threads[0]!;
    for (let n = 0; n < 10; n++) {
      expect(clock.monotonic() - pulse.beatAt).toBeLessThan(500);
      clock.advance(499);
    }
  });

  test("is started again when it ends, with the last renewal, and a warning says so", async () => {
    const { cluster, clock, threads } = world();
    cluster.lease(TTL_SECONDS);
    const warned = once(process, "warning") as Promise<[Error & { code: string }]>;
    clock.advance(3000);
    threads[0]!.renewed(3000);
    threads[0]!.handlers.ended("it was told to");

    expect(threads).toHaveLength(2);
    expect(threads[1]!.kept[0]).toMatchObject({ leaseId: LEASE_ID, sent: { monotonic: 3000 } });
    expect((await warned)[0]).toMatchObject({ name: "LeaseholdWarning", code: "RENEWAL_WORKER_ENDED" });
  });

  test("is started once in a second, if it ends at once or cannot be started", () => {
    const { cluster, clock, threads, failing } = world();
    cluster.lease(TTL_SECONDS);
    threads[0]!.handlers.ended("it was told to");
    failing.starts = true;
    clock.advance(2500);
    failing.starts = false;
    expect(threads).toHaveLength(1);
    clock.advance(1000);

    expect(threads).toHaveLength(2);
    expect(threads[1]!.kept).toHaveLength(1);
  });

  test("is the reason of the loss if it cannot be started", () => {
    const { cluster, clock, failing } = world();
    failing.starts = true;
    const lease = cluster.lease(TTL_SECONDS);
    for (let n = 0; n < TTL_SECONDS; n++) clock.advance(1000);

    expect(String(lease.signal.reason)).toContain(
      "the worker thread that renews leases does not run: no thread",
    );
    expect(String(lease.signal.reason)).not.toContain("etcd did not answer");
  });

  test("runs a while after the last lease, and then ends", () => {
    const { cluster, clock, threads } = world();
    cluster.lease(TTL_SECONDS).abandon();
    clock.advance(4000);
    const second = cluster.lease(TTL_SECONDS);
    for (let n = 0; n < 4; n++) {
      threads[0]!.renewed(clock.monotonic()).tell();
      clock.advance(2000);
    }
    expect(threads.map(({ terminated }) => terminated)).toEqual([false]);
    second.abandon();
    clock.advance(5001);

    expect(threads[0]!.terminated).toBe(true);
  });

  test("is told of exchanged certificates at a renewal", () => {
    const [old, fresh] = [makeAuthority("old"), makeAuthority("fresh")].map(({ certificate }) =>
      String(certificate),
    );
    let rootCertificate = old;
    const { cluster, clock, threads } = world({
      hosts: ["https://a:1"],
      credentials: () => ({ rootCertificate }),
    });
    cluster.lease(TTL_SECONDS);
    const trusted = () => threads[0]!.orders.filter((order) => order.do === "trust");
    threads[0]!.renewed(clock.monotonic()).tell();
    expect(trusted()).toEqual([]);
    rootCertificate = fresh;
    clock.advance(8000);
    threads[0]!.renewed(clock.monotonic()).tell();
    clock.advance(8000);
    threads[0]!.renewed(clock.monotonic()).tell();

    expect(trusted()).toEqual([
      { do: "trust", credentials: expect.objectContaining({ rootCertificate: fresh }) as unknown },
    ]);
  });
});
