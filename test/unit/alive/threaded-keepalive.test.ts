import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../src/errors.js";
import type { StartThread, ThreadHandlers } from "../../../src/alive/threaded-keepalive.js";
import {
  type RenewalOrder,
  type RenewalReach,
  type SharedPulse,
  SharedRenewal,
} from "../../../src/alive/shared-renewal.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { RenewedMessage } from "../../../src/base/telemetry/messages.js";
import { Messages } from "../../support/fixtures/messages.js";
import { makeAuthority } from "../../support/fixtures/certificates.js";
import { FakeCluster, LEASE_ID } from "../../support/fakes/fake-connection.js";

const TTL_SECONDS = 10;
const TTL_MS = TTL_SECONDS * 1000;

/** What the fake clock that counts suspend is ahead of the monotonic one. */
const AHEAD_MS = 6_000_000;

/** Until a renewal is answered. */
const ANSWER_MS = 20;

type Keep = Extract<RenewalOrder, { do: "keep" }>;

/** The other thread, as far as it is told. */
class FakeThread {
  readonly orders: RenewalOrder[] = [];
  terminated = false;
  hear: () => void = () => undefined;

  readonly pulse: SharedPulse;
  readonly now: RenewalReach;
  readonly handlers: ThreadHandlers;

  constructor(
    setting: Pick<Parameters<StartThread>[0], "pulse" | "now" | "handlers">,
    private readonly answers: boolean,
  ) {
    ({ pulse: this.pulse, now: this.now, handlers: this.handlers } = setting);
  }

  post(order: RenewalOrder): void {
    this.orders.push(order);
    if (order.do === "keep" && this.answers) this.handlers.news({ is: "kept", leaseId: order.leaseId });
  }

  get kept(): readonly Keep[] {
    return this.orders.filter((order) => order.do === "keep");
  }

  /** A renewal that was sent at `monotonic` is accepted. Without a message, as long as `tell` was not called. */
  renewed(monotonic: number) {
    const sent = { monotonic, suspend: monotonic + AHEAD_MS };
    for (const { memory } of this.kept) new SharedRenewal(memory).write(sent, TTL_MS);
    const answeredAt = monotonic + ANSWER_MS;
    const news = { leaseId: LEASE_ID, sent, answeredAt, ttlSeconds: TTL_SECONDS, host: "a:1" };
    return { tell: () => this.handlers.news({ is: "renewed", ...news }) };
  }
}

function world(options: Readonly<Record<string, unknown>> = {}) {
  const threads: FakeThread[] = [];
  const failing = { starts: false, answers: false };
  const start: StartThread = ({ pulse, now, handlers }) => {
    if (failing.starts) throw new Error("no thread");
    const thread = new FakeThread({ pulse, now, handlers }, !failing.answers);
    threads.push(thread);
    return {
      post: (order) => thread.post(order),
      hear: () => thread.hear(),
      terminate: () => void (thread.terminated = true),
    };
  };
  const cluster = new FakeCluster({ renewal: "worker", ...options }, start);
  /** What this thread has sent, on all streams. */
  const renewals = () =>
    cluster.connected.flatMap(({ keepalives }) => keepalives.map((stream) => stream.renewals));
  return { cluster, clock: cluster.clock, threads, failing, renewals: () => renewals().flat() };
}

/** As etcd does, for `ms`: it answers what this thread sends. Returns how many renewals that were. */
function serve({ cluster, clock, renewals }: ReturnType<typeof world>, ms: number): number {
  const before = renewals().length;
  for (let n = 0; n < ms / 100; n++) {
    clock.advance(100);
    for (const stream of cluster.connected.flatMap(({ keepalives }) => keepalives))
      if (!stream.closed) stream.answer(LEASE_ID, TTL_SECONDS);
  }
  return renewals().length - before;
}

/** The warnings of the thread, as they have been emitted. */
async function warningsIn(run: () => void): Promise<readonly string[]> {
  const warnings: string[] = [];
  const listener = (warning: Error & { code?: string }) =>
    void (warning.code === "RENEWAL_WORKER_ENDED" && warnings.push(warning.message));
  await settle();
  process.on("warning", listener);
  run();
  await settle();
  process.off("warning", listener);
  return warnings;
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

  test("tells each renewal with the time of its answer, whenever it is read", () => {
    const { cluster, clock, threads } = world();
    cluster.lease(TTL_SECONDS);
    const [thread] = threads;
    using told = new Messages<RenewedMessage>(
      CHANNELS.renewed,
      ({ hosts }) => hosts === cluster.services.options.hosts,
    );
    const unread = [3000, 6000].map((ms) => thread!.renewed(clock.monotonic() + ms));
    clock.freeze(TTL_MS);
    for (const { tell } of unread) tell();

    expect(told.all.map(({ durationMs }) => durationMs)).toEqual([ANSWER_MS, ANSWER_MS]);
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
    for (let n = 0; n < 2 * TTL_SECONDS; n++) {
      handlers.news({ is: "failing", failures: [["b:1", "no answer in time"]] });
      handlers.news({ is: "refused", leaseId: LEASE_ID, ...refusal });
      clock.advance(500);
    }

    const { reason } = lease.signal as { readonly reason: Error & { members: Map<string, Error> } };
    expect(reason.cause).toBeInstanceOf(EtcdRefusedError);
    expect(reason.members.get("b:1")).toMatchObject({ message: "no answer in time" });
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

describe("the main thread", () => {
  test("renews until a thread has taken the lease over, and none is lost", () => {
    const it = world();
    it.failing.answers = true;
    const lease = it.cluster.lease(TTL_SECONDS);

    // A third of the TTL after each other.
    expect(serve(it, 10 * TTL_MS)).toBe(30);
    expect(lease.over).toBe(false);
    const [thread] = it.threads;
    thread!.handlers.news({ is: "kept", leaseId: LEASE_ID });
    for (let n = 0; n < 30; n++) {
      thread!.renewed(it.clock.monotonic()).tell();
      expect(serve(it, TTL_MS / 3)).toBe(0);
    }
    expect(
      it.cluster.connected.flatMap(({ keepalives }) => keepalives.filter(({ closed }) => !closed)),
    ).toEqual([]);
  });

  test("renews when the thread has ended, at the time that was due, and while none can be started", async () => {
    const it = world();
    const lease = it.cluster.lease(TTL_SECONDS);
    it.threads[0]!.renewed(it.clock.monotonic());
    it.failing.starts = true;
    const warnings = await warningsIn(() => {
      it.threads[0]!.handlers.ended("no thread");
      expect(serve(it, TTL_MS / 3)).toBe(1);
      expect(serve(it, 10 * TTL_MS)).toBe(30);
    });

    expect(lease.over).toBe(false);
    // Of all attempts to start one.
    expect(warnings).toEqual([
      expect.stringMatching(/does not renew leases: no thread\. .* the main thread renews them/),
    ]);
  });

  test("renews what a thread that runs does not, before half of the TTL, and says why after a TTL", async () => {
    const it = world();
    const lease = it.cluster.lease(TTL_SECONDS);
    const warnings = await warningsIn(() => {
      expect(serve(it, 0.45 * TTL_MS - 100)).toBe(0);
      expect(serve(it, 100)).toBe(1);
      it.threads[0]!.handlers.news({ is: "failing", failures: [["a:1", "certificate has expired"]] });
      expect(serve(it, 9 * TTL_MS)).toBe(20);
    });

    expect(lease.over).toBe(false);
    expect(warnings).toEqual([
      expect.stringMatching(/does not renew leases: a:1: certificate has expired\. /),
    ]);
  });

  test("keeps what it has sent when it reads what the thread had sent before", () => {
    const it = world();
    const lease = it.cluster.lease(TTL_SECONDS);
    const last = it.clock.monotonic() + TTL_MS / 3;
    it.threads[0]!.renewed(last);
    it.clock.advance(last + TTL_MS / 2 + 1 - it.clock.monotonic());
    expect(it.renewals()).toEqual([LEASE_ID]);
    // Unread for as long as this thread stood still.
    it.threads[0]!.renewed(last).tell();
    serve(it, 1000);

    expect(lease.over).toBe(false);
    expect(lease.remainingMs()).toBeGreaterThan(TTL_MS / 2);
  });

  test("renews a lease that is not kept yet, as one that is adopted", () => {
    const it = world();
    const answers: number[] = [];
    const listener = { leaseId: LEASE_ID, patienceMs: 1000, leaseNotFound: () => undefined };
    it.cluster.services.keepalive.renew({ ...listener, renewed: (_, ttl) => void answers.push(ttl) });
    serve(it, 100);

    expect(answers).toEqual([TTL_SECONDS]);
    expect(it.threads).toEqual([]);
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
    const sentAt = clock.monotonic() - 10;
    threads[0]!.renewed(sentAt);
    threads[0]!.handlers.ended("it was told to");

    expect(threads).toHaveLength(2);
    expect(threads[1]!.kept[0]).toMatchObject({ leaseId: LEASE_ID, sent: { monotonic: sentAt } });
    expect((await warned)[0]).toMatchObject({ name: "LeaseholdWarning", code: "RENEWAL_WORKER_ENDED" });
  });

  test("is started after a second, and then after pauses that double, if it ends at once or cannot be started", () => {
    const { cluster, clock, threads, failing } = world();
    cluster.lease(TTL_SECONDS);
    threads[0]!.handlers.ended("it was told to");
    failing.starts = true;
    clock.advance(1000);
    failing.starts = false;
    clock.advance(1999);
    expect(threads).toHaveLength(1);
    clock.advance(1);

    expect(threads).toHaveLength(2);
    expect(threads[1]!.kept).toHaveLength(1);
  });

  test("is a reason of the loss if it cannot be started and this thread is blocked", () => {
    const { cluster, clock, failing } = world();
    failing.starts = true;
    const lease = cluster.lease(TTL_SECONDS);
    clock.freeze(TTL_MS);

    expect(lease.over).toBe(true);
    expect(String(lease.signal.reason)).toMatch(
      /this process did not run for .*, and the worker thread does not renew leases: no thread$/,
    );
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
    const trusted = () => threads[0]!.orders.filter((order) => order.do === "reach");
    threads[0]!.renewed(clock.monotonic()).tell();
    expect(trusted()).toEqual([]);
    rootCertificate = fresh;
    clock.advance(8000);
    threads[0]!.renewed(clock.monotonic()).tell();
    clock.advance(8000);
    threads[0]!.renewed(clock.monotonic()).tell();

    expect(trusted()).toEqual([
      { do: "reach", credentials: expect.objectContaining({ rootCertificate: fresh }) as unknown },
    ]);
  });

  test("is told of exchanged certificates and of other hosts at once when its connections fail", () => {
    const [old, fresh] = [makeAuthority("old"), makeAuthority("fresh")].map(({ certificate }) =>
      String(certificate),
    );
    let rootCertificate = old;
    const { cluster, threads } = world({
      ...{ hosts: ["https://a:1"], followMembers: true, credentials: () => ({ rootCertificate }) },
    });
    cluster.lease(TTL_SECONDS);
    const [thread] = threads;
    const fail = () => thread!.handlers.news({ is: "failing", failures: [["https://a:1", "no answer"]] });
    fail();
    expect(thread!.orders.filter((order) => order.do === "reach")).toEqual([]);
    rootCertificate = fresh;
    cluster.client.hosts.replaceWith(["https://a:1", "https://b:1"]);
    fail();
    fail();

    expect(thread!.orders.filter((order) => order.do === "reach")).toEqual([
      {
        do: "reach",
        credentials: expect.objectContaining({ rootCertificate: fresh }) as unknown,
        hosts: ["https://a:1", "https://b:1"],
      },
    ]);
    // So does the next one.
    thread!.handlers.ended("it was told to");
    cluster.clock.advance(1000);
    expect(threads[1]!.now).toMatchObject({ hosts: ["https://a:1", "https://b:1"] });
  });
});
