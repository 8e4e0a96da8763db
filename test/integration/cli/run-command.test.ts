// How `leasehold run` starts and ends its command at the edges of a hold, with a real etcd.
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { PassThrough } from "node:stream";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect, Mutex, type Cluster } from "../../../src/index.js";
import { runCommand } from "../../../src/tools/cli/run/run-command.js";
import { CommandSignals, paceOf, Reporter } from "../../../src/tools/cli/run/settings.js";
import { leasesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { startCli } from "../../support/programs/cli.js";

let etcd: EtcdCluster;
let cluster: Cluster;
let folder: string;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-run-"));
});
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
  await rm(folder, { recursive: true, force: true });
});

test("a command does not start if its key was deleted since the grant, which the library has not noticed yet", async () => {
  const marker = path.join(folder, "started");
  const signals = new CommandSignals(new AbortController().signal, new Set());
  onTestFinished(() => signals.stop());
  const io = {
    env: process.env,
    stdin: new PassThrough(),
    stdout: new PassThrough(),
    stderr: new PassThrough(),
  };
  const common = {
    cluster,
    signals,
    reporter: new Reporter(io, false),
    pace: paceOf({}),
    maxHoldMs: undefined,
  };
  const lock = await new Mutex(cluster, "edges/deleted").lock();
  await etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(lock.key).toString("base64") });

  const started = runCommand({ ...common, words: ["touch", marker], env: process.env }, lock);

  await expect(started).rejects.toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
  expect(existsSync(marker)).toBe(false);
});

test("signals end a release and a close that etcd does not answer: the command's code, within a part of the TTL", async () => {
  const ttlMs = 60_000;
  const script = "trap '' TERM; echo ready; read -r go; exit 3";
  const words = ["run", "edges/release", "--ttl", `${ttlMs}ms`, "--", "sh", "-c", script];
  const cli = startCli(words, { endpoints: etcd.endpoints.join(",") });
  await cli.says("ready");
  etcd.member.pause();
  const begin = performance.now();
  cli.child.stdin?.end("go\n");
  // The first ones are passed on to the command, which ignores them.
  const ended = () => {
    cli.child.kill("SIGTERM");
    return cli.child.exitCode ?? cli.child.signalCode;
  };
  await expect.poll(ended, { interval: 1, timeout: ttlMs / 3 }).not.toBeNull();
  expect(await cli.ended).toMatchObject({ code: 3, signal: null });
  const tookMs = performance.now() - begin;
  etcd.member.resume();

  expect(tookMs).toBeLessThan(ttlMs / 6);
});

test("a signal after the close ends a program that is still running, with the command's code", async () => {
  const keptAlive = { NODE_OPTIONS: "--import=data:text/javascript,setInterval(Date.now,1000)" };
  const words = ["run", "edges/closed", "--", "sh", "-c", "echo ready; read -r go; exit 3"];
  const before = await leasesOf(etcd.member);
  const cli = startCli(words, { endpoints: etcd.endpoints.join(","), env: keptAlive });
  await cli.says("ready");
  const own = [...(await leasesOf(etcd.member))].filter((id) => !before.has(id));
  expect(own).toHaveLength(1);
  cli.child.stdin?.end("go\n");
  const left = async () => (await leasesOf(etcd.member)).has(own[0]!);
  await expect.poll(left).toBe(false);

  cli.child.kill("SIGTERM");

  expect(await cli.ended).toMatchObject({ code: 3, signal: null });
});
