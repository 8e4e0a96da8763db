import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Cluster, connect, lead, LockLostError, Mutex, untilShutdown } from "../../../src/index.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

// A signal of its own: vitest's worker listens to SIGTERM.
const signals = ["SIGUSR2"] as const;
const kill = () => process.kill(process.pid, "SIGUSR2");

let etcd: EtcdCluster;
let cluster: Cluster;
beforeAll(async () => void (etcd = await startEtcd()));
beforeEach(() => void (cluster = connect({ hosts: etcd.endpoints })));
afterAll(() => etcd.stop());

describe("untilShutdown", () => {
  test("on a signal lets the lock end in time, begins no other, and leaves nothing in etcd", async () => {
    const mutex = new Mutex(cluster, "shutdown/drained");
    let rounds = 0;
    const ended = untilShutdown(
      cluster,
      async (signal) => {
        while (!signal.aborted)
          await mutex.withLock(
            async (lock) => {
              rounds++;
              kill();
              await once(signal, "abort");
              await delay(50);
              expect([lock.held, await placesOf(etcd.member, "shutdown/drained")]).toMatchObject([
                true,
                [{}],
              ]);
            },
            { signal },
          );
        return "done";
      },
      { signals },
    );
    await expect(ended).resolves.toBe("done");
    expect([rounds, process.listenerCount("SIGUSR2")]).toEqual([1, 0]);
    expect(await leasesOf(etcd.member)).toEqual(new Set());
    await expect(mutex.lock()).rejects.toMatchObject({ code: "SESSION_CLOSED" });
  });

  test.each([
    ["a wait with the signal", (signal: AbortSignal) => new Mutex(cluster, "shutdown/busy").lock({ signal })],
    ["a wait without it", () => new Mutex(cluster, "shutdown/busy").lock()],
    ["a timer of Node.js", (signal: AbortSignal) => delay(60_000, undefined, { signal })],
    [
      "lead",
      (stop: AbortSignal) => lead(cluster, "shutdown/lead", () => once(stop, "abort"), { signal: stop }),
    ],
  ])("takes the end of %s for no failure", async (_, wait) => {
    await using other = connect({ hosts: etcd.endpoints });
    await using lock = await new Mutex(other, "shutdown/busy").lock();
    const ended = untilShutdown<unknown>(cluster, wait, { signals });
    if (_.includes("wait")) await expect.poll(() => placesOf(etcd.member, lock.name)).toHaveLength(2);
    kill();
    await expect(ended).resolves.toBeUndefined();
  });

  test("rejects with the loss of work that was not done after drainMs", async () => {
    const mutex = new Mutex(cluster, "shutdown/late");
    const ended = untilShutdown(
      cluster,
      () => mutex.withLock(async (lock) => (kill(), once(lock.signal, "abort"))),
      { signals, drainMs: 100 },
    );
    const error: unknown = await ended.catch((it: unknown) => it);
    expect(error).toBeInstanceOf(LockLostError);
    expect(error).toMatchObject({ loss: "closed" });
  });

  test("without a signal passes on what work gives, and closes the cluster", async () => {
    await expect(untilShutdown(cluster, () => 7)).resolves.toBe(7);
    await expect(cluster.session()).rejects.toMatchObject({ code: "SESSION_CLOSED" });
    const wrong = new Error("wrong");
    const fails = untilShutdown(connect({ hosts: etcd.endpoints }), () => Promise.reject(wrong));
    await expect(fails).rejects.toBe(wrong);
    // No signal came, so the closed cluster is a failure.
    await expect(untilShutdown(cluster, () => cluster.session())).rejects.toThrow(/closed/);
  });

  test("a second signal finds no listener", async () => {
    const listeners: number[] = [];
    await untilShutdown(
      cluster,
      async (signal) => {
        listeners.push(process.listenerCount("SIGUSR2"));
        kill();
        await once(signal, "abort");
        listeners.push(process.listenerCount("SIGUSR2"));
      },
      { signals },
    );
    expect(listeners).toEqual([1, 0]);
  });

  test.each([
    [{ signals: "SIGTERM" }, "Expected signals to be an array of names such as SIGTERM"],
    [
      { signals: ["SIGKILL"] },
      'Expected signals to be names of signals that a process can listen to, such as SIGTERM, got "SIGKILL"',
    ],
    [{ signals: ["TERM"] }, 'got "TERM"'],
    [{ drainMs: -1 }, "Expected drainMs to be"],
    [{ drain: 1 }, "did you mean drainMs?"],
  ])("rejects the options %j", async (options, text) => {
    await expect(untilShutdown(cluster, () => 1, options as never)).rejects.toThrow(text);
    await expect(untilShutdown({} as never, () => 1)).rejects.toThrow(TypeError);
    await cluster.close();
  });
});
