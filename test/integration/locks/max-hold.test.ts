import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { setImmediate as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { holdLongChannel } from "../../../src/base/telemetry/channels.js";
import {
  type Cluster,
  connect,
  type Hold,
  lockAll,
  type LockOptions,
  Mutex,
  Session,
} from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { limited, slug, type Subject, tried } from "../../support/fixtures/subjects.js";
import { Published } from "../../support/fixtures/published.js";
import { owned } from "../../support/programs/owned.js";

let etcd: EtcdCluster;
let cluster: Cluster;
let session: Session;
let other: Session;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  session = await Session.open(cluster, { ttlSeconds: 60 });
  other = await Session.open(cluster, { ttlSeconds: 60 });
}, 60_000);
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

const PROGRAM = fileURLToPath(new URL("../../support/programs/max-hold-program.js", import.meta.url));
const MAX_MS = 100;
const LOSS = { code: "LOCK_LOST", loss: "max_hold" };
const keysOf = async (name: string) => (await placesOf(etcd.member, name)).length;

/** Resolves with the time when the hold was lost. Unless it was lost before the call, its grace has not begun then. */
async function lost({ signal }: Pick<Hold, "signal">): Promise<number> {
  if (signal.aborted) return performance.now();
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(performance.now()), { once: true });
  });
}

const FORMS: readonly [form: string, subject: Subject, take: Subject["take"]][] = [
  ...limited.map((it): [string, Subject, Subject["take"]] => [it.what, it, it.take]),
  ["a try", limited[0]!, async (...args) => (await tried[0]!.tryTake(...args))!],
];

describe.each(FORMS)("%s that is held for longer than maxHoldMs", (form, { block }, take) => {
  const name = (what: string) => `${slug(form)}/${what}`;
  const limit = (what: string, options: LockOptions) => take(session, name(what), {}, options);

  test("is lost, and the next waiter gets it only after the grace", async () => {
    const graceMs = 300;
    // Long enough for the test to wait for the loss before it happens.
    const hold = await limit("grace", { maxHoldMs: 5 * MAX_MS, maxHoldGraceMs: graceMs });
    let turn = false;
    const waiting = block(other, name("grace")).then((lock) => ((turn = true), lock));

    const lostAt = await lost(hold);
    expect([hold.held, turn]).toEqual([false, false]);
    expect(hold.signal.reason).toMatchObject(LOSS);
    const lock = await waiting;

    // Node.js rounds timers down to whole milliseconds.
    expect(performance.now() - lostAt).toBeGreaterThan(graceMs - 2);
    expect(lock.held).toBe(true);
    await lock.release();
    expect(session.state).toBe("live");
  });

  test("keeps its key for the grace, however long that is", async () => {
    const options = { maxHoldMs: MAX_MS, maxHoldGraceMs: 3_600_000 };
    const hold = await limit("key", options);
    const keys = await keysOf(name("key"));

    await lost(hold);

    expect(keys).toBeGreaterThan(0);
    expect(await keysOf(name("key"))).toBe(keys);
    await expect(hold.release()).rejects.toBe(hold.signal.reason);
    expect(await keysOf(name("key"))).toBe(0);
  });

  test("goes to the next waiter of its own session as well", async () => {
    const hold = await limit("own", { maxHoldMs: MAX_MS, maxHoldGraceMs: 0 });
    const lock = await block(session, name("own"));

    expect(hold.held).toBe(false);
    await lock.release();
    expect(await keysOf(name("own"))).toBe(0);
  });
});

describe("withLock with maxHoldMs", () => {
  const options = { maxHoldMs: MAX_MS, maxHoldGraceMs: 3_600_000 };

  test("lets work stop on the signal before the next holder starts", async () => {
    const log: string[] = [];
    const mutex = new Mutex(session, "stops", options);
    let begin = () => {};
    const begun = new Promise<void>((resolve) => (begin = resolve));
    const first = mutex.withLock(async (lock) => {
      begin();
      await lost(lock);
      // The work of stopping, which takes a few turns and a call to etcd.
      await keysOf("stops");
      log.push("stopped");
    });
    await begun;
    const second = new Mutex(other, "stops").withLock(() => log.push("started"));

    await expect(first).rejects.toMatchObject(LOSS);
    await second;

    expect(log).toEqual(["stopped", "started"]);
  });

  test("rejects with the error of the work, and with nothing when the work was in time", async () => {
    const mutex = new Mutex(session, "errors", options);
    const failure = new Error("the work failed");

    const failed = mutex.withLock(async (lock) => {
      await lost(lock);
      throw failure;
    });

    await expect(failed).rejects.toBe(failure);
    expect(await new Mutex(session, "errors", { maxHoldMs: 3_600_000 }).withLock(() => "done")).toBe("done");
  });

  test("ends only this hold: the session and its other holds continue", async () => {
    const unlimited = await new Mutex(session, "unlimited").lock();
    const limited = await new Mutex(session, "limited", { maxHoldMs: 1, maxHoldGraceMs: 0 }).lock();

    await lost(limited);
    await limited.release().catch(() => undefined);

    expect([session.state, unlimited.held, await keysOf("limited")]).toEqual(["live", true, 0]);
    await unlimited.release();
  });

  test("counts from the grant, not from the call", async () => {
    const holder = await new Mutex(other, "waits", { maxHoldMs: 1100, maxHoldGraceMs: 0 }).lock();
    // It waits for longer than it may hold.
    const lock = await new Mutex(session, "waits", { maxHoldMs: 1000 }).lock();
    const left = lock.remainingMs();

    expect(holder.held).toBe(false);
    expect(left).toBeGreaterThan(0);
    await lock.release().catch(() => undefined);
  });
});

test("lockAll is reported by warnHoldMs once, as a whole", async () => {
  using long = new Published(holdLongChannel);

  const names = ["long/a", "long/b"];
  const hold = await lockAll(session, names, { maxHoldMs: MAX_MS, warnHoldMs: 1, label: "long" });
  await lost(hold);

  const { fence, keys } = hold;
  expect(long.messages).toMatchObject([
    {
      kind: "all",
      name: "long/a",
      names,
      label: "long",
      key: keys[0],
      fence,
      revision: fence,
      warnHoldMs: 1,
    },
  ]);
  await expect(hold.release()).rejects.toMatchObject(LOSS);
});

test("a process that was stopped sees the loss in its first line after that, before any timer has run", async () => {
  const maxHoldMs = 2000;
  const arguments_ = [PROGRAM, etcd.endpoints.join(","), "stopped", String(maxHoldMs)];
  const program = owned(spawn(process.execPath, arguments_, { stdio: ["ignore", "pipe", "inherit"] }));
  try {
    const printed = text(program.stdout);
    await stopped(program.pid!);
    // Granted after the program's lock, so that one is overdue when this one is.
    await lost(await new Mutex(session, "clock", { maxHoldMs }).lock());
    program.kill("SIGCONT");

    const seen = { before: true, aborted: false, after: false, ms: 0, loss: "max_hold" };
    expect(JSON.parse(await printed)).toEqual(seen);
    expect(await keysOf("stopped")).toBe(0);
  } finally {
    program.kill("SIGKILL");
  }
});

/** Resolves when the process has been stopped by a signal. */
async function stopped(pid: number): Promise<void> {
  const isStopped = () => / T /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  while (!isStopped()) await pause();
}
