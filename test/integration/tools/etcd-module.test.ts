// The module that finds and starts etcd, on which every other test depends.
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { inCache, isAlive } from "../../support/etcd/etcd-cache.js";
import { EtcdMissingError, findEtcd, startEtcd } from "../../support/etcd/etcd.js";

const FIND = fileURLToPath(new URL("../../support/etcd/etcd-find.js", import.meta.url));
const cleanups: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  await Promise.allSettled(cleanups.splice(0).map((cleanup) => cleanup()));
});

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-test-"));
  cleanups.push(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function runNode(args: readonly string[], env: NodeJS.ProcessEnv): Promise<Ended> {
  const child = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  cleanups.push(() => Promise.resolve(child.kill("SIGKILL")));
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, stdout, stderr })));
}

async function until(what: string, isSo: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!isSo()) {
    if (performance.now() > deadline) throw new Error(`not within 10 s: ${what}`);
    await delay(20);
  }
}

describe("finding etcd", () => {
  it("gives both programs and the version of the server", async () => {
    const found = await findEtcd();

    expect(found.version).toMatch(/^3\.\d+\.\d+/);
    expect([existsSync(found.etcd), existsSync(found.etcdctl)]).toEqual([true, true]);
  });

  it("prefers the folder that LEASEHOLD_ETCD names", async () => {
    const { etcd } = await findEtcd();
    const folder = await temporaryFolder();
    await writeFile(path.join(folder, "etcd"), `#!/bin/sh\nexec '${etcd}' "$@"\n`, { mode: 0o755 });
    await writeFile(path.join(folder, "etcdctl"), "#!/bin/sh\n", { mode: 0o755 });

    const found = await findEtcd({ env: { ...process.env, LEASEHOLD_ETCD: folder } });

    expect(found.etcd).toBe(path.join(folder, "etcd"));
  });

  it("ends with code 69 and says what was tried and what to do where there is no etcd and no way to get one", async () => {
    const home = await temporaryFolder();

    const ended = await runNode([FIND], { PATH: "", HOME: home });

    expect(ended.code).toBe(69);
    expect(ended.stdout).toBe("");
    expect(ended.stderr).toMatch(
      /LEASEHOLD_ETCD: not set\n.*PATH: no etcd.*\n.*cache .*empty\n.*there is no apt-get here/,
    );
    expect(ended.stderr).toMatch(/What to do: \S+/);
  });

  it("names the version that is missing", async () => {
    const home = await temporaryFolder();

    const finding = findEtcd({ version: "3.5", env: { PATH: "", HOME: home } });

    await expect(finding).rejects.toThrow(EtcdMissingError);
    await expect(finding).rejects.toThrow("No etcd 3.5 was found");
  });
});

describe("the cache that concurrent finders share", () => {
  it("is filled once, however many want it", async () => {
    const env = { XDG_CACHE_HOME: await temporaryFolder() };
    let fills = 0;

    const folders = await Promise.all(
      Array.from({ length: 5 }, () =>
        inCache("programs", env, async (folder) => {
          fills++;
          await writeFile(path.join(folder, "etcd"), "");
        }),
      ),
    );

    expect(fills).toBe(1);
    expect(new Set(folders).size).toBe(1);
    expect(await readdir(folders[0]!)).toEqual(["etcd"]);
  });

  it("is not left half filled by a fetcher that fails", async () => {
    const cache = await temporaryFolder();

    const filling = inCache("programs", { XDG_CACHE_HOME: cache }, () =>
      Promise.reject(new Error("no network")),
    );

    await expect(filling).rejects.toThrow("no network");
    expect(await readdir(path.join(cache, "leasehold"))).toEqual([]);
  });

  it("does not wait for a fetcher that died", async () => {
    const cache = await temporaryFolder();
    await mkdir(path.join(cache, "leasehold"));
    const dead = await runNode(["-p", "process.pid"], {});
    const lock = path.join(cache, "leasehold", "programs.lock");
    await writeFile(lock, JSON.stringify({ pid: Number(dead.stdout), host: os.hostname(), id: "dead" }));

    const folder = await inCache("programs", { XDG_CACHE_HOME: cache }, () => Promise.resolve());

    expect(existsSync(folder)).toBe(true);
  });

  it("does not wait for a fetcher on another host that fell silent", async () => {
    const cache = await temporaryFolder();
    await mkdir(path.join(cache, "leasehold"));
    const lock = path.join(cache, "leasehold", "programs.lock");
    await writeFile(lock, JSON.stringify({ pid: process.pid, host: "elsewhere.example", id: "silent" }));
    const longAgo = new Date(Date.now() - 3_600_000);
    await utimes(lock, longAgo, longAgo);

    const folder = await inCache("programs", { XDG_CACHE_HOME: cache }, () => Promise.resolve());

    expect(existsSync(folder)).toBe(true);
  });
});

describe("a started etcd", () => {
  it("answers etcdctl, tells its revision and metrics, and keeps its data over a kill", async () => {
    await using cluster = await startEtcd();
    const before = await cluster.member.status();

    const put = await cluster.etcdctl(["put", "colour", "blue"]);
    const { member } = cluster;
    const puts = (await member.metrics()).get(
      'grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}',
    );
    await member.kill();
    await member.restart();
    const got = await cluster.etcdctl(["get", "colour", "--print-value-only"]);

    expect(put).toMatchObject({ code: 0, stdout: "OK\n" });
    expect(puts).toBe(1);
    expect(got.stdout).toBe("blue\n");
    expect((await member.status()).revision).toBe(before.revision + 1n);
  });

  it("takes none of the ETCD_ settings of its environment", async () => {
    process.env["ETCD_LISTEN_CLIENT_URLS"] = "http://203.0.113.1:2379";
    cleanups.push(() => Promise.resolve(delete process.env["ETCD_LISTEN_CLIENT_URLS"]));

    await using cluster = await startEtcd();

    expect((await cluster.etcdctl(["get", "anything"])).code).toBe(0);
  });

  it("takes a learner in, which refuses what a voting member answers, and stops it with the others", async () => {
    const cluster = await startEtcd({ args: ["--strict-reconfig-check=false"] });
    const learner = await cluster.addLearner();

    await expect(learner.gateway("/v3/kv/range", { key: "AA==" })).rejects.toThrow(/learner/);
    const { members } = (await cluster.member.gateway("/v3/cluster/member/list", {})) as {
      members: { isLearner?: boolean }[];
    };
    // In the order of their IDs.
    expect(members.map(({ isLearner }) => isLearner === true).toSorted()).toEqual([false, true]);

    await cluster.stop();
    expect(learner.running).toBe(false);
  });

  it("is asked as a user from the login on, with or without passwords, and after its tokens were dropped", async () => {
    await using cluster = await startEtcd({ args: ["--bcrypt-cost=4"] });
    const { member } = cluster;
    const root = { username: "root", password: "secret" };
    await member.gateway("/v3/auth/user/add", { name: "root", password: root.password });
    await member.gateway("/v3/auth/role/add", { name: "root" });
    await member.gateway("/v3/auth/user/grant", { user: "root", role: "root" });
    const read = () => member.gateway("/v3/kv/range", { key: "AA==" });

    await member.gateway("/v3/auth/enable", {});
    await expect(read()).rejects.toThrow("user name is empty");
    expect(await member.headers()).toEqual({});
    member.login(root);
    await read();
    expect(await member.headers()).toEqual({ authorization: expect.any(String) as string });
    await member.gateway("/v3/auth/disable", {});
    await read();
    await member.gateway("/v3/auth/enable", {});
    await read();
  });

  it("with three members elects another leader when its leader is killed or paused", async () => {
    await using cluster = await startEtcd({ members: 3 });
    const first = await cluster.leader();

    await first.kill();
    const second = await cluster.leader();
    await first.restart();
    second.pause();
    const third = await cluster.leader();
    second.resume();

    expect(new Set([first, second]).size).toBe(2);
    expect(third).not.toBe(second);
    expect(new Set(cluster.members.map((member) => member.endpoint)).size).toBe(3);
  });

  it("is gone with its data when its starter was killed with SIGKILL", async () => {
    const temp = await temporaryFolder();
    const script = `
      import { startEtcd } from ${JSON.stringify(new URL("../../support/etcd/etcd.js", import.meta.url).href)};
      const cluster = await startEtcd({ members: 3 });
      console.log(cluster.members.map((member) => member.pid).join(" "));
      setInterval(() => {}, 1000);`;
    const starter = spawn(process.execPath, ["--input-type=module", "-e", script], {
      env: { ...process.env, TMPDIR: temp },
      stdio: ["ignore", "pipe", "inherit"],
    });
    cleanups.push(() => Promise.resolve(starter.kill("SIGKILL")));
    const line = await new Promise<string>((resolve) =>
      starter.stdout.once("data", (chunk: Buffer) => resolve(chunk.toString())),
    );
    const pids = line.trim().split(" ").map(Number);
    expect(pids.map(isAlive)).toEqual([true, true, true]);

    starter.kill("SIGKILL");

    await until("the members are gone", () => pids.every((pid) => !isAlive(pid)));
    await until("their data is removed", () => readdirSync(temp).length === 0);
  });
});
