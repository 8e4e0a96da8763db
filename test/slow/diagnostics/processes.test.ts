// A process that holds a lock is stopped, stands still, or is killed: what it publishes itself, and what others see of it.
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";
import { acquireChannel, CHANNELS } from "../../../src/diagnostics/channels.js";
import type { AcquireMessage, RenewedMessage } from "../../../src/diagnostics/messages.js";
import { inspect, Mutex } from "../../../src/index.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import { Messages } from "../../support/fixtures/messages.js";
import { Traced } from "../../support/fixtures/published.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/holder-program.js", import.meta.url));
const TTL_SECONDS = 3;
const TTL_MS = TTL_SECONDS * 1000;
const STALLED = /this process did not run for at least [\d.]+ s of them/;

// First: a build keeps this process from renewing its sessions.
beforeAll(() => buildPackage(), 150_000);
/** The sessions of this process have to outlast those of the others. */
const two = twoSessions(4 * TTL_SECONDS);

interface Sent {
  readonly event: string;
  readonly message: unknown;
}
interface SentError {
  readonly code: string;
  readonly loss: string;
  readonly message: string;
}
interface SentEnd {
  readonly name: string;
  readonly why: string;
  readonly reason: SentError;
  /** Of the reason. */
  readonly cause?: SentError;
}
interface SentState {
  readonly to: string;
  readonly stalledMs: number;
  readonly sinceLastRenewalMs: number;
  readonly error?: SentError;
}

/** A process that holds the lock of that name. */
async function holderOf(name: string) {
  const child = fork(PROGRAM, [...two.etcd.endpoints, name, String(TTL_SECONDS), "the process"]);
  const sent: Sent[] = [];
  const held = new Promise<bigint>((resolve, reject) => {
    child.on("message", (message: Sent | { readonly held: string }) => {
      if ("held" in message) resolve(BigInt(message.held));
      else sent.push(message);
    });
    child.once("exit", () => reject(new Error("It ended before it had the lock.")));
  });
  const of = <M>(event: string) => sent.filter((it) => it.event === event).map(({ message }) => message as M);
  const stop = async () => {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  };
  return { child, fence: await held, of, [Symbol.asyncDispose]: stop };
}

type Holder = Awaited<ReturnType<typeof holderOf>>;

/** Waits for the lock in this process, which etcd gives it when the lease of the holder is over. */
async function overtake(name: string) {
  const next = new Mutex(two.session, name).lock();
  await two.queued(name, 2);
  return next;
}

/** Until the session of this process has been renewed once more. */
async function renewal() {
  using renewed = new Messages<RenewedMessage>(CHANNELS.renewed);
  await renewed.first(({ leaseId }) => leaseId === two.session.leaseId);
}

/** What keeps the process from running, for more than a TTL. Resolves with how long at least, when it runs again. */
const STALLS: Readonly<Record<string, (holder: Holder, name: string) => Promise<number>>> = {
  "is stopped by SIGSTOP": async ({ child }, name) => {
    child.kill("SIGSTOP");
    const before = performance.now();
    const lock = await overtake(name);
    await renewal();
    const stoppedMs = performance.now() - before;
    child.kill("SIGCONT");
    await lock.release();
    return stoppedMs;
  },
  "has blocked its event loop": async ({ child }, name) => {
    child.send({ blockMs: 2 * TTL_MS });
    const lock = await overtake(name);
    await lock.release();
    return 2 * TTL_MS;
  },
};

describe.each(Object.entries(STALLS))("a holder that %s past its deadline", (how, stall) => {
  test("publishes once each that its hold and its session are lost, and to what", async () => {
    const name = `processes/${how}`;
    await using holder = await holderOf(name);
    const { leaseId } = (await two.places(name))[0]!;

    const stalledMs = await stall(holder, name);
    const lost = () => holder.of<SentState>("leasehold.session").filter(({ to }) => to === "lost");
    await expect.poll(lost, { timeout: 20_000 }).toHaveLength(1);

    const [end, ...others] = holder.of<SentEnd>("leasehold.hold.end");
    expect(others).toEqual([]);
    expect(end).toMatchObject({ name, why: "expired", fence: String(holder.fence), owner: "the process" });
    expect(end?.reason).toMatchObject({ code: "LOCK_LOST", loss: "expired" });
    expect(end?.reason.message).toContain("its session was not renewed in time");
    expect(end?.cause?.message).toMatch(STALLED);
    expect(end?.cause?.message).not.toContain("etcd did not answer");

    const [state] = lost();
    expect(state).toMatchObject({ leaseId: String(leaseId), remainingMs: 0, error: { loss: "expired" } });
    expect(state?.error?.message).toBe(end?.cause?.message);
    // Up to half of the TTL passes until the first timer that is late.
    expect(state?.stalledMs).toBeGreaterThan(stalledMs - 0.6 * TTL_MS);
    expect(state?.stalledMs).toBeLessThanOrEqual(state!.sinceLastRenewalMs);

    // The line is written, and sent, after the message.
    const errors = () => holder.of<string>("log").filter((line) => line.startsWith("error "));
    const line = `error leasehold: ${state?.error?.message}; locks that ended with it: "${name}"`;
    await expect.poll(errors).toEqual([line]);
  }, 90_000);
});

test("kill -9 of a holder: the next one is granted within a TTL or so, and inspect shows both", async () => {
  const name = "processes/killed";
  using trace = new Traced<AcquireMessage>(acquireChannel);
  await using holder = await holderOf(name);
  const began = performance.now();
  const waiting = new Mutex(two.session, name).lock();
  await two.queued(name, 2);
  const before = await inspect(two.cluster, name);

  const killed = performance.now();
  holder.child.kill("SIGKILL");
  const lock = await waiting;
  const granted = performance.now();
  const after = await inspect(two.cluster, name);

  expect(before).toMatchObject({
    holders: [{ owner: "the process", revision: holder.fence, state: "holding" }],
    waiters: [{ owner: two.session.owner, revision: lock.fence, state: "waiting" }],
    total: { holders: 1, waiters: 1 },
  });
  expect(before.holders[0]?.ttlRemainingMs).toBeLessThanOrEqual(TTL_MS);
  expect(after).toMatchObject({
    holders: [{ owner: two.session.owner, revision: lock.fence, state: "holding" }],
    waiters: [],
    total: { holders: 1, waiters: 0 },
  });
  expect(trace.ended).toMatchObject([
    { name, ahead: 1, outcome: "granted", fence: lock.fence, owner: two.session.owner },
  ]);
  // etcd lets a lease expire at its TTL after the last renewal, and looks for such leases twice a second.
  expect(granted - killed).toBeLessThan(2 * TTL_MS);
  const { waitedMs = NaN } = trace.ended[0]!;
  expect(waitedMs).toBeLessThanOrEqual(granted - began);
  expect(waitedMs).toBeGreaterThan(killed - began);
  // The process could publish nothing.
  expect(holder.of("leasehold.hold.end")).toEqual([]);
  await lock.release();
}, 60_000);
