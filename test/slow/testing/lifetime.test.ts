// How an etcd of leasehold/testing starts and ends.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { startEtcd, type TestEtcd } from "../../../src/testing/start.js";
import { isAlive } from "../../support/etcd/etcd-cache.js";
import { findEtcd } from "../../support/etcd/etcd.js";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";

const PACKAGE = fileURLToPath(new URL("../../../dist/leasehold-testing.js", import.meta.url));
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-testing-"));
  cleanups.push(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function program(text: string): Promise<string> {
  const file = path.join(await temporaryFolder(), "etcd");
  await writeFile(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

/**
 * A process that has started an etcd with the built package, with a folder for temporary files of its own. It goes on when its
 * standard input ends.
 */
async function starter(count: 1 | 3, then = "") {
  const temp = await temporaryFolder();
  const { etcd } = await findEtcd();
  const code = `
    import { startEtcd } from ${JSON.stringify(PACKAGE)};
    const etcd = await startEtcd({ binary: ${JSON.stringify(etcd)}, members: ${count} });
    console.log(etcd.hosts.join());
    for await (const _ of process.stdin);
    ${then}`;
  const child = owned(
    spawn(process.execPath, ["--input-type=module", "-e", code], {
      env: { ...process.env, TMPDIR: temp },
      stdio: ["pipe", "pipe", "inherit"],
    }),
  );
  const exited = once(child, "exit");
  await new Said(child).next();
  const members = pidsWith(temp);
  return { child, exited, members, temp };
}

/** The members whose data is in this folder. */
function pidsWith(folder: string): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => commandOf(pid).includes(`--data-dir=${folder}`));
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

describe("the start of an etcd", () => {
  it("has nothing of the caller's ETCD_ settings or of another's keys, and gives etcdctl what it needs", async () => {
    process.env["ETCD_LISTEN_CLIENT_URLS"] = "http://203.0.113.1:2379";
    cleanups.push(() => delete process.env["ETCD_LISTEN_CLIENT_URLS"]);
    const both = await Promise.all([startEtcd(), startEtcd()]);
    cleanups.push(() => Promise.all(both.map((each) => each.stop())));
    const [etcd, other] = both;

    const { etcdctl } = await findEtcd();
    const child = owned(spawn(etcdctl, ["put", "colour", "blue"], { env: { PATH: "", ...etcd.env } }));

    expect(await once(child, "exit")).toEqual([0, null]);
    expect(await etcd.keys()).toEqual(["colour"]);
    expect(await etcd.keys("colours")).toEqual([]);
    expect(await other.keys()).toEqual([]);
    expect(other.hosts).not.toEqual(etcd.hosts);
    expect(etcd.version).toMatch(/^3\.\d+\.\d+/);
  });

  it("says what etcd has printed if it ends", async () => {
    const { version } = await findEtcd();
    const binary = await program(`
      if [ "$1" = --version ]; then echo "etcd Version: ${version}"; exit; fi
      echo "the disk is on fire" >&2; exit 3`);

    await expect(startEtcd({ binary })).rejects.toThrow(
      /^etcd m0 ended with 3 before it was ready\. Its last words:\nthe disk is on fire$/,
    );
  });

  it("ends at its time limit and at an abort, and leaves no process and no data", async () => {
    const binary = await program(`
      if [ "$1" = --version ]; then echo "etcd Version: 3.5.0"; exit; fi
      echo "waiting for my peers"; exec sleep 600`);
    const temp = await temporaryFolder();
    const before = process.env["TMPDIR"];
    process.env["TMPDIR"] = temp;
    cleanups.push(() =>
      before === undefined ? delete process.env["TMPDIR"] : (process.env["TMPDIR"] = before),
    );
    const stop = new AbortController();

    await expect(startEtcd({ binary, timeoutMs: 300 })).rejects.toThrow(
      /not ready within 300 ms.*\nwaiting for my peers/,
    );
    const starting = startEtcd({ binary, signal: stop.signal });
    setImmediate(() => stop.abort("enough"));
    await expect(starting).rejects.toBe("enough");
    await expect(startEtcd({ signal: stop.signal })).rejects.toBe("enough");

    expect(readdirSync(temp)).toEqual([]);
  });

  it("says where it has looked and what to do if there is no etcd", async () => {
    const home = await temporaryFolder();
    const env = { ...process.env };
    for (const name of ["LEASEHOLD_ETCD", "LEASEHOLD_ETCD_VERSION", "XDG_CACHE_HOME"])
      delete process.env[name];
    Object.assign(process.env, { PATH: "", HOME: home });
    cleanups.push(() => {
      // It may have been unset.
      delete process.env["HOME"];
      Object.assign(process.env, env);
    });

    await expect(startEtcd()).rejects.toThrow(
      /^No etcd was found.*\n.*LEASEHOLD_ETCD: not set\n.*PATH: no etcd\n.*cache .*: no etcd\nWhat to do: \S+/,
    );
    await expect(startEtcd({ binary: "/nowhere/etcd" })).rejects.toThrow(/\/nowhere\/etcd/);
  });

  it("refuses a program of another version", async () => {
    const { etcd: binary, version } = await findEtcd();

    await expect(startEtcd({ binary, version: "2.3" })).rejects.toThrow(
      `${binary} is etcd ${version}, and version asks for 2.3`,
    );
  });
});

describe("the end of an etcd", () => {
  it("leaves no member and no data when its starter is killed with SIGKILL", async () => {
    const { child, members, temp } = await starter(3);
    expect(members.length).toBe(3);

    child.kill("SIGKILL");

    await expect.poll(() => members.filter(isAlive)).toEqual([]);
    await expect.poll(() => readdirSync(temp)).toEqual([]);
  });

  it("comes when its starter ends without stop(), which it does not keep from ending", async () => {
    const { child, exited, members, temp } = await starter(1, "await etcd.pause(); await etcd.cut();");
    expect(members.length).toBe(1);

    child.stdin.end();

    expect(await exited).toEqual([0, null]);
    await expect.poll(() => members.filter(isAlive)).toEqual([]);
    await expect.poll(() => readdirSync(temp)).toEqual([]);
  });

  it("is reached by stop() during everything else, which rejects", async () => {
    const etcd = await startEtcd({ members: 3 });
    const cluster = connect({ hosts: etcd.hosts, session: { ttlSeconds: 2 } });
    cleanups.push(() => cluster.close({ drainMs: 0 }).catch(() => {}));
    const lock = await new Mutex(cluster, "until/the/end").lock();
    await etcd.cut(1);
    await etcd.pause(2);

    const restarting = etcd.restart(0);
    const losing = etcd.lose(lock);
    const quiet = etcd.isQuiet({ timeoutMs: 60_000 });
    const ended = Promise.allSettled([restarting, losing, quiet]);
    await Promise.all([etcd.stop(), etcd.stop()]);
    const [restarted, lost] = await ended;

    expect(restarted.status).toBe("rejected");
    expect(lost.status).toBe("rejected");
    for (const late of [etcd.pause(), etcd.cut(), etcd.keys(), etcd.expire(1n), etcd.leader()])
      await expect(late).rejects.toThrow("This etcd was stopped");
    await etcd.stop();
  });

  it("is the end of a block with await using, whatever state the members are in", async () => {
    const temp = await temporaryFolder();
    const before = process.env["TMPDIR"];
    process.env["TMPDIR"] = temp;
    cleanups.push(() =>
      before === undefined ? delete process.env["TMPDIR"] : (process.env["TMPDIR"] = before),
    );
    {
      await using etcd = await startEtcd();
      await etcd.kill();
      await expect(etcd.keys()).rejects.toThrow("every member is paused or killed");
      await etcd.restart();
      await etcd.pause(0);
    }

    expect(readdirSync(temp)).toEqual([]);
  });
});

describe("three members", () => {
  let etcd: TestEtcd;
  beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
  afterAll(() => etcd.stop());

  it("elect another leader when theirs is killed, paused or restarted", async () => {
    const first = await etcd.leader();
    await etcd.kill(first);
    const second = await etcd.leader();
    await etcd.restart(first);
    await etcd.pause(second);
    const third = await etcd.leader();
    await etcd.resume(second);

    expect(second).not.toBe(first);
    expect(third).not.toBe(second);
    await expect(etcd.kill(3)).rejects.toThrow("Expected member to be a member's index, from 0 to 2, got 3");
  });

  it("serve a client whose link to one of them is cut", async () => {
    await using cluster = connect({ hosts: etcd.hosts, requestTimeoutMs: 1_000 });
    const mutex = new Mutex(cluster, "one/cut");

    const fences: bigint[] = [];
    for (const member of [0, 1, 2]) {
      await etcd.cut(member);
      fences.push(await mutex.withLock((lock) => lock.fence));
      await etcd.heal(member);
    }

    expect(fences.length).toBe(3);
  });
});
