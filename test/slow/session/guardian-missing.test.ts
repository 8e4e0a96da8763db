// `guardian: true` where the guardian cannot be started, or does not last.
import { execFile } from "node:child_process";
import { cp, mkdtemp, readdir, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect, type LogRecord, Mutex } from "../../../src/index.js";
import { guardianChannel } from "../../../src/base/telemetry/channels.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Published } from "../../support/fixtures/published.js";
import { Guarded } from "../../support/programs/guarded.js";

const run = promisify(execFile);
const DIST = fileURLToPath(new URL("../../../dist/", import.meta.url));
const PROGRAM = fileURLToPath(new URL("../../support/programs/unguarded-program.js", import.meta.url));

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

test("where the system starts none, locks work, and the log, the health and a channel say why, once", async () => {
  const { execPath } = process;
  onTestFinished(() => void (process.execPath = execPath));
  process.execPath = "/no/such/node";
  using published = new Published(guardianChannel);
  const { messages: told } = published;
  const lines: LogRecord[] = [];
  const log = (record: LogRecord) => void (record.event.startsWith("guardian.") && lines.push(record));
  await using cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: 2 }, guardian: true, log });
  await new Mutex(cluster, "none/a").withLock(({ held }) => expect(held).toBe(true));
  await expect.poll(() => told).toHaveLength(1);

  expect(told[0]?.hosts).toBe(cluster.hosts);
  expect(told[0]?.error?.message).toContain("spawn /no/such/node ENOENT");
  expect(lines).toMatchObject([{ level: "warn", event: "guardian.ended" }]);
  expect(lines[0]?.message).toContain("spawn /no/such/node ENOENT");
  expect(cluster.health().guardian).toEqual({ ok: false, error: told[0]?.error?.message });

  process.execPath = execPath;
  await expect
    .poll(() => told.map(({ error }) => error?.message))
    .toEqual([told[0]?.error?.message, undefined]);
  expect(lines.slice(1)).toMatchObject([{ level: "info", event: "guardian.running" }]);
  expect(cluster.health().guardian).toEqual({ ok: true, error: undefined });
});

test("orphan() works where the system starts none", async () => {
  const { execPath } = process;
  onTestFinished(() => void (process.execPath = execPath));
  process.execPath = "/no/such/node";
  await using cluster = connect({ hosts: etcd.endpoints, guardian: true });
  const session = await cluster.session();
  expect(await session.orphan()).toBe(session.leaseId);
});

test("a program of the guardian that is gone is one warning with its cause, whatever the number of renewals", async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-unguarded-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  for (const name of (await readdir(DIST)).filter((each) => /^leasehold.*\.js$/.test(each)))
    await cp(path.join(DIST, name), path.join(folder, name));
  await cp(path.join(DIST, "../package.json"), path.join(folder, "package.json"));
  const options = JSON.stringify({ hosts: etcd.endpoints, session: { ttlSeconds: 2 } });
  const { stdout } = await run(process.execPath, [PROGRAM, options, folder]);

  const { warnings, health } = JSON.parse(stdout) as { warnings: unknown[]; health: object };
  const message = expect.stringContaining("Cannot find module") as string;
  expect(warnings).toEqual([{ code: "GUARDIAN_ENDED", message }]);
  expect(health).toMatchObject({ ok: true, guardian: { ok: false, error: message } });
});

test("a process without a free descriptor lives on without its guardian, which is started when there are some", async () => {
  const code = `
    import { openSync, closeSync } from "node:fs";
    import { channel } from "node:diagnostics_channel";
    import { connect, inspect } from ${JSON.stringify(path.join(DIST, "leasehold.js"))};
    const told = [];
    let hear;
    channel("leasehold.guardian").subscribe(({ error }) => { told.push(error?.message ?? "runs"); hear?.(); });
    const heard = async (count) => { while (told.length < count) await new Promise((resolve) => { hear = resolve; }); };
    const cluster = connect({ hosts: ${JSON.stringify(etcd.endpoints)}, guardian: true });
    await inspect(cluster, "descriptors");
    const open = [];
    try { for (;;) open.push(openSync("/dev/null")); } catch {}
    await cluster.session();
    await heard(1);
    open.forEach((fd) => closeSync(fd));
    await heard(2);
    await cluster.close();
    console.log(JSON.stringify(told));`;
  const words = [process.execPath, "--input-type=module", "--eval", code];
  const { stdout } = await run("sh", ["-c", 'ulimit -n 64; exec "$@"', "sh", ...words]);

  expect(JSON.parse(stdout)).toEqual([expect.stringContaining("EMFILE"), "runs"]);
});

test("connect() refuses a guardian where Node.js may start no process", async () => {
  const code = `
    import { connect } from ${JSON.stringify(path.join(DIST, "leasehold.js"))};
    try { connect({ hosts: "127.0.0.1:1", guardian: true }) } catch (error) { console.log(String(error)) }`;
  const flag = process.allowedNodeEnvironmentFlags.has("--permission")
    ? "--permission"
    : "--experimental-permission";
  const { stdout } = await run(process.execPath, [
    ...[flag, "--allow-fs-read=*", "--input-type=module"],
    ...["--eval", code],
  ]);

  expect(stdout).toContain("RangeError: Option guardian needs Node.js's flag --allow-child-process here");
});

test("connect() refuses a guardian in a zip file of Yarn's Plug'n'Play", () => {
  const module = process.getBuiltinModule("node:module") as { findPnpApi?: unknown };
  onTestFinished(() => void delete module.findPnpApi);
  const where = {
    real: "/app/.yarn/cache/leasehold-1.zip/node_modules/leasehold/dist/leasehold-guardian.js",
  };
  module.findPnpApi = () => ({ resolveVirtual: () => where.real });

  expect(() => connect({ hosts: "127.0.0.1:1", guardian: true })).toThrow(
    "Option guardian cannot start a program in a zip file: run yarn unplug leasehold",
  );
  where.real = "/app/.yarn/unplugged/leasehold-1/node_modules/leasehold/dist/leasehold-guardian.js";
  expect(() => connect({ hosts: "127.0.0.1:1", guardian: true })).not.toThrow();
});

test.each(["alone", "in PM2"])(
  "a guardian that is killed when it has just begun is followed by another one at once, %s",
  async (place) => {
    const setting = place === "alone" ? {} : { env: { ...process.env, pm_id: "0" } };
    const name = `again/${place}`;
    // What is gone within the time of a poll was revoked; no renewal is due before a third of this.
    const options = { hosts: etcd.endpoints, session: { ttlSeconds: 120 } };
    await using program = await Guarded.start(options, [name], "wait", setting);
    const counts = place === "alone" ? [1, 0] : [0, 1];
    await expect.poll(() => [program.guardians.length, program.apart.length]).toEqual(counts);
    for (let n = 0; n < 3; n++) await program.killGuardian();
    await program.kill();

    await expect.poll(() => placesOf(etcd.member, name)).toEqual([]);
  },
);
