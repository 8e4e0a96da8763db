import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as channels from "../../../src/base/telemetry/channels.js";
import type { AcquireMessage } from "../../../src/base/telemetry/messages.js";
import { connect, type Logger, Mutex } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage } from "../../support/fixtures/examples.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const { CHANNELS, ...ALL } = channels;
let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

/** A logger that keeps its lines. */
class Lines implements Logger {
  readonly all: string[] = [];

  debug(line: string): void {
    this.all.push(`debug ${line}`);
  }

  info(line: string): void {
    this.all.push(`info ${line}`);
  }

  warn(line: string): void {
    this.all.push(`warn ${line}`);
  }

  error(line: string): void {
    this.all.push(`error ${line}`);
  }

  count(text: string): number {
    return this.all.filter((line) => line.includes(text)).length;
  }
}

const subscribed = () => Object.values(ALL).some((channel) => channel.hasSubscribers);

describe("a cluster's log", { timeout: 120_000 }, () => {
  test("subscribes to nothing without a logger, and to nothing after close", async () => {
    await using silent = connect({ hosts: etcd.member.endpoint });
    await new Mutex(silent, "silent").withLock(() => {});
    expect(subscribed()).toBe(false);

    await using logged = connect({ hosts: etcd.member.endpoint, log: new Lines() });
    expect(subscribed()).toBe(true);
    await logged.close();
    expect(subscribed()).toBe(false);
    expect(Object.keys(CHANNELS)).toHaveLength(12);
  });

  test("goes to stderr with LEASEHOLD_DEBUG=1, and nowhere without", async () => {
    const program = `
      import { connect } from "leasehold";
      import { hasSubscribers } from "node:diagnostics_channel";
      const cluster = connect({ hosts: "127.0.0.1:1" });
      console.log(hasSubscribers("leasehold.session"));
      await cluster.close();
    `;
    const run = async (LEASEHOLD_DEBUG: string) => {
      const options = { cwd: ROOT, env: { ...process.env, LEASEHOLD_DEBUG }, timeout: 20_000 };
      return promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], options);
    };

    expect((await run("1")).stdout).toBe("true\n");
    expect(await run("")).toMatchObject({ stdout: "false\n", stderr: "" });
  });

  test("is over some time after a cluster is dropped without a close", async () => {
    const program = `
      import { connect, Mutex } from "leasehold";
      import { channel } from "node:diagnostics_channel";
      import { setImmediate as turn } from "node:timers/promises";
      const log = { warn() {}, error() {}, debug() {} };
      const drop = () => void connect({ hosts: "127.0.0.1:1", log }).health();
      drop();
      for (let n = 0; n < 1000 && channel("leasehold.session").hasSubscribers; n++) {
        gc();
        await turn();
      }
      const cluster = connect({ hosts: "127.0.0.1:1", log });
      const { hasSubscribers } = channel("leasehold.session");
      await cluster.close();
      console.log(hasSubscribers, channel("leasehold.session").hasSubscribers);
    `;
    const args = ["--expose-gc", "--input-type=module", "-e", program];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: ROOT, timeout: 20_000 });

    // The second cluster alone is subscribed, until it is closed: nothing of the first one is left.
    expect(stdout).toBe("true false\n");
  });

  test("names the holder of a lock that a call waits for, by one read of the queue", async () => {
    const log = new Lines();
    await using holder = connect({ hosts: etcd.member.endpoint, session: { owner: "web-3\u001b[31m" } });
    await using first = connect({ hosts: etcd.member.endpoint });
    await using cluster = connect({ hosts: etcd.member.endpoint, log });
    const lock = await new Mutex(holder, "orders/17").lock();
    const ahead = new Mutex(first, "orders/17").lock();
    await expect.poll(() => first.snapshot().waits[0]?.revision).toBeDefined();
    const call = {
      ...{ hosts: cluster.hosts, kind: "mutex", name: "orders/17", names: ["orders/17"], tries: false },
    } as unknown as AcquireMessage;
    const waiting = new Mutex(cluster, "orders/17").lock();
    await expect.poll(() => cluster.snapshot().waits[0]?.revision).toBeDefined();
    channels.acquireChannel.start.publish(call);

    // The first line comes after 30 s.
    await expect
      .poll(() => log.count("waiting 30 s"), { timeout: 100_000, interval: 200 })
      .toBeGreaterThan(0);

    const [line = ""] = log.all.filter((each) => each.includes("waiting 30 s"));
    expect(line).toMatch(
      /^warn leasehold: waiting 30 s for "orders\/17": held by "web-3\\u001b\[31m" \(joined/,
    );
    expect(line).toMatch(/ ago\), 2 ahead/);
    channels.acquireChannel.asyncEnd.publish(call);
    await lock.release();
    await (await ahead).release();
    await (await waiting).release();
  });

  test("has one line for a hold that is older than its warnHoldMs", async () => {
    const log = new Lines();
    await using cluster = connect({ hosts: etcd.member.endpoint, log });
    const lock = await new Mutex(cluster, "long", { warnHoldMs: 100 }).lock();

    await expect.poll(() => log.count("longer than its warnHoldMs of 100 ms")).toBe(1);
    await lock.release();
  });
});
