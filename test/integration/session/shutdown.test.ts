import { getEventListeners, once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  httpStatusOf,
  lead,
  LockLostError,
  Mutex,
  untilShutdown,
} from "../../../src/index.js";
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

  /** A server that takes a lock for each request. It closes when the shutdown has begun, and `others` have been answered. */
  async function served(options: object, others: () => Promise<unknown>) {
    const server = createServer((request, response) => {
      const serve = new Mutex(cluster, `served${request.url}`).withLock(() => response.end("done"));
      serve.catch((error: unknown) => response.writeHead(httpStatusOf(error) ?? 500).end());
    });
    const ended = untilShutdown(
      cluster,
      async (signal) => {
        server.listen(0, "127.0.0.1");
        await once(signal, "abort");
        await others();
        server.close();
        await once(server, "close");
        return [signal.reason as unknown, await leasesOf(etcd.member)] as const;
      },
      { signals, ...options },
    );
    await once(server, "listening");
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const ask = async (path: string) =>
      (await fetch(`${url}${path}`, { headers: { connection: "close" } })).status;
    expect(await ask("/before")).toBe(200);
    return { ended, ask };
  }

  test.each([
    [true, 200],
    [false, 503],
  ])("with workFirst: %s, a server that goes on answers with %d", async (workFirst, status) => {
    const answers: number[] = [];
    const others = async () => {
      for (let n = 0; n < 20; n++) answers.push(await ask(`/${n}`));
    };
    const { ended, ask } = await served({ workFirst }, others);
    kill();
    const [reason, leases] = (await ended)!;

    expect(new Set(answers)).toEqual(new Set([status]));
    expect(reason).toMatchObject({ name: "AbortError", message: "got SIGUSR2" });
    expect(leases.size).toBe(workFirst ? 1 : 0);
    expect(await leasesOf(etcd.member)).toEqual(new Set());
  });

  test("with workFirst ends waits without a signal, and work that never ends, when drainMs has passed", async () => {
    await using other = connect({ hosts: etcd.endpoints });
    await using lock = await new Mutex(other, "shutdown/never").lock();
    const waits = (signal: AbortSignal) => {
      signal.addEventListener("abort", () => void (begun = performance.now()));
      return new Mutex(cluster, lock.name).lock();
    };
    let begun = 0;
    const ended = untilShutdown(cluster, waits, { signals, workFirst: true, drainMs: 300 });
    await expect.poll(() => placesOf(etcd.member, lock.name)).toHaveLength(2);
    kill();

    await expect(ended).resolves.toBeUndefined();
    // Timers may fire a millisecond early.
    expect(performance.now() - begun).toBeGreaterThanOrEqual(299);
  });

  test("begins with the abort of a signal of one's own, which may have come before", async () => {
    const own = new AbortController();
    const options = { signal: own.signal, signals: [] };
    const waits = (signal: AbortSignal) => delay(60_000, undefined, { signal });
    const ended = untilShutdown(cluster, waits, options);
    own.abort(new Error("enough"));
    await expect(ended).resolves.toBeUndefined();

    const next = untilShutdown(
      connect({ hosts: etcd.endpoints }),
      (signal) => signal.reason as Error,
      options,
    );
    await expect(next).resolves.toBe(own.signal.reason);
    expect(getEventListeners(own.signal, "abort")).toEqual([]);
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
    [{ workFirst: 1 }, "Expected workFirst to be true or false, got 1"],
    [{ signal: "SIGTERM" }, "Expected signal to be an AbortSignal"],
  ])("rejects the options %j", async (options, text) => {
    await expect(untilShutdown(cluster, () => 1, options as never)).rejects.toThrow(text);
    await expect(untilShutdown({} as never, () => 1)).rejects.toThrow(TypeError);
    await cluster.close();
  });
});
