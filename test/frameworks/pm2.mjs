// The guardian under PM2, which ends a whole tree of processes: run by `npm run test:all -- frameworks`, with an etcd at ETCD.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { connect, inspect, Mutex } from "leasehold";

const { ETCD: hosts } = process.env;
/** The TTL of the service is 60 s: what is free within this time was revoked. */
const LIMIT_MS = 20_000;
const PM2 = path.resolve("node_modules/pm2/bin/pm2");
const SERVICE = path.join(import.meta.dirname, "pm2-app.mjs");
const home = await mkdtemp(path.join(os.tmpdir(), "leasehold-pm2-"));
const mine = connect({ hosts });

/** @param {string[]} args @param {NodeJS.ProcessEnv} env */
async function pm2(args, env = {}) {
  const setting = { env: { ...process.env, PM2_HOME: home, ...env }, timeout: 40_000 };
  const { stdout } = await promisify(execFile)(process.execPath, [PM2, ...args], setting);
  return stdout;
}

after(async () => {
  await pm2(["kill"]);
  await mine.close();
  await rm(home, { recursive: true, force: true });
});

/** Resolves when each instance of the service has its lock. */
async function start(name, { instances, stubborn }) {
  const mode = instances === undefined ? [] : ["--instances", String(instances)];
  await pm2(["start", SERVICE, "--name", name, "--kill-timeout", "1000", ...mode], {
    NAME: name,
    ...(stubborn && { STUBBORN: "yes" }),
  });
  return Promise.all(Array.from({ length: instances ?? 1 }, (_, n) => holderOf(`${name}/${n}`)));
}

const revisionsIn = (entries) => entries.map(({ revision }) => revision);

async function holderOf(name) {
  for (;;) {
    const [holder] = (await inspect(mine, name)).holders;
    if (holder) return holder;
  }
}

/** When it has its turn behind those that hold the lock now. */
async function next(name) {
  const before = (await inspect(mine, name)).waiters.length;
  const granted = new Mutex(mine, name).lock({ timeoutMs: LIMIT_MS });
  granted.catch(() => {});
  while ((await inspect(mine, name)).waiters.length === before);
  return async () => (await granted).release();
}

async function pidsOf(name) {
  const list = JSON.parse(await pm2(["jlist"]));
  return list.filter((each) => each.name === name).map(({ pid }) => pid);
}

for (const [mode, instances] of [
  ["fork", undefined],
  ["cluster", 2],
]) {
  test(`${mode} mode: kill -9 frees the lock of the process, and no other`, async () => {
    const name = `pm2/${mode}-kill`;
    const holders = await start(name, { instances });
    const turn = await next(`${name}/0`);
    const [pid] = await pidsOf(name);
    process.kill(pid, "SIGKILL");
    await turn();
    for (const [n, { revision }] of holders.entries())
      if (n > 0) assert.deepEqual(revisionsIn((await inspect(mine, `${name}/${n}`)).holders), [revision]);
    await pm2(["delete", name]);
  });

  for (const stubborn of [false, true])
    test(`${mode} mode: pm2 delete of a process that ends ${stubborn ? "by SIGKILL only" : "by SIGINT"}`, async () => {
      const name = `pm2/${mode}-delete-${stubborn}`;
      const holders = await start(name, { instances, stubborn });
      const turns = await Promise.all(holders.map((_, n) => next(`${name}/${n}`)));
      await pm2(["delete", name]);
      await Promise.all(turns.map((turn) => turn()));
    });

  test(`${mode} mode: pm2 reload hands the lock to the new process`, async () => {
    const name = `pm2/${mode}-reload`;
    const holders = await start(name, { instances, stubborn: true });
    const turns = await Promise.all(holders.map((_, n) => next(`${name}/${n}`)));
    await pm2(["reload", name]);
    await Promise.all(turns.map((turn) => turn()));
    for (const [n, { revision }] of holders.entries())
      assert.ok((await holderOf(`${name}/${n}`)).revision > revision);
    await pm2(["delete", name]);
  });
}
