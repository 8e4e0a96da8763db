// Hosts where no etcd listens, such as after a typo in the configuration: only here is every call tried without any answer at all.
import { describe, expect, test } from "vitest";
import {
  connect,
  EtcdUnavailableError,
  inspect,
  lead,
  LockTimeoutError,
  Mutex,
  Session,
  type Cluster,
} from "../../../src/index.js";
import { rejection } from "../../support/fixtures/misuse.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { freePorts } from "../../support/servers/ports.js";

/** What `cluster.session()` takes by default. */
const OPEN_TIMEOUT_MS = 10_000;
/** A close that waited for one attempt would not end within the test. */
const FOR_EVER_MS = 60_000;

const elapsed = async (run: () => Promise<unknown>) => {
  const start = performance.now();
  await run();
  return performance.now() - start;
};

describe.each(["http2", "etcd3"] as const)("hosts that all reject connections, over %s,", (transport) => {
  const dead = async () => {
    const hosts = (await freePorts(2)).map((port) => `127.0.0.1:${port}`).join(", ");
    return connect({ hosts, transport, requestTimeoutMs: FOR_EVER_MS });
  };

  test.each<[string, (cluster: Cluster) => Promise<unknown>]>([
    ["lock()", (cluster) => new Mutex(cluster, "dead").lock()],
    ["cluster.session()", (cluster) => cluster.session()],
    ["Session.open()", (cluster) => Session.open(cluster)],
    ["inspect()", (cluster) => inspect(cluster, "dead")],
  ])("fail %s before its time limit, with the failure of each, and close() at once", async (_, run) => {
    const cluster = await dead();
    let error: unknown;

    const took = await elapsed(async () => (error = await rejection(() => run(cluster))));

    expect(error).toBeInstanceOf(EtcdUnavailableError);
    expect([...(error as EtcdUnavailableError).members.keys()].sort()).toEqual([...cluster.hosts].sort());
    expect((error as Error).message.match(/ECONNREFUSED/g)).toHaveLength(2);
    expect((error as Error).message).toMatch(/\b3 s\b.*timeoutMs/);
    expect(took).toBeLessThan(0.7 * OPEN_TIMEOUT_MS);
    expect(await elapsed(() => cluster.close())).toBeLessThan(took / 2);
  });

  test("do not delay a close() while a call still tries them", async () => {
    const cluster = await dead();
    const locking = rejection(() => new Mutex(cluster, "dead").lock());

    await cluster.close();

    expect(await locking).toMatchObject({ code: "SESSION_CLOSED" });
  });

  test("leave a limit of the caller that is shorter as it is", async () => {
    await using cluster = await dead();

    const error = await rejection(() => new Mutex(cluster, "dead").lock({ timeoutMs: 500 }));

    expect([EtcdUnavailableError, LockTimeoutError]).toContain((error as Error).constructor);
  });

  test.each<[string, (cluster: Cluster) => Promise<unknown>]>([
    ["lock()", (cluster) => new Mutex(cluster, "late").lock({ timeoutMs: FOR_EVER_MS })],
    ["lock() that rejoins", (cluster) => new Mutex(cluster, "late").lock({ rejoin: true })],
    ["cluster.session()", (cluster) => cluster.session({ timeoutMs: FOR_EVER_MS })],
    ["Session.open()", (cluster) => Session.open(cluster, { timeoutMs: FOR_EVER_MS })],
    ["inspect()", (cluster) => inspect(cluster, "late", { timeoutMs: FOR_EVER_MS })],
  ])("do not stop %s with a limit of its own, which waits for the etcd that starts later", async (_, run) => {
    await using etcd = await startEtcd();
    await etcd.member.kill();
    await using cluster = connect({ hosts: etcd.endpoints, transport });
    const call = run(cluster);
    // Who has no limit of his own has ended by then.
    await rejection(() => cluster.session());

    await etcd.member.restart();

    expect(await call).toBeDefined();
    await cluster.close({ drainMs: 0 });
  });

  test("do not stop lead(), which reports each attempt and leads when etcd is there", async () => {
    const etcd = await startEtcd();
    await etcd.member.kill();
    await using cluster = connect({ hosts: etcd.endpoints, transport });
    const stop = new AbortController();
    const retries: string[] = [];
    const led = lead(cluster, "dead/lead", () => stop.abort(), {
      signal: stop.signal,
      onRetry: (error) => {
        retries.push(error.code);
        if (retries.length === 1) void etcd.member.start();
      },
    });

    await led;

    expect(new Set(retries)).toEqual(new Set(["ETCD_UNAVAILABLE"]));
    await etcd.stop();
  });
});
