// `guardian: true`: all ways in which a process ends, and all that a guardian needs.
import { readFileSync } from "node:fs";
import path from "node:path";
import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { memoryEtcd } from "../../../src/testing/start.js";
import { GUARDED_PROGRAM, Guarded } from "../../support/programs/guarded.js";
import { guardiansOf } from "../../support/programs/guardians.js";
import { isRunning } from "../../support/programs/process-state.js";
import { Said } from "../../support/programs/said.js";

/** What is gone within the time of a poll, 10 s, was revoked, and has not expired. */
const LONG = 60;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const optionsOf = (ttlSeconds = LONG) => ({ hosts: etcd.endpoints, session: { ttlSeconds } });
const places = (name: string) => placesOf(etcd.member, name);
const isGone = (name: string) => expect.poll(() => places(name)).toEqual([]);
const expired = async () => (await etcd.member.metrics()).get("etcd_debugging_server_lease_expired_total");

const IN_PM2 = { env: { ...process.env, pm_id: "0" } };

/** In PM2, it is no child of the program. */
async function guardianOf(program: Guarded): Promise<number> {
  await expect.poll(() => [program.guardians.length, program.apart.length]).toEqual([0, 1]);
  return program.apart[0] ?? 0;
}

describe("the leases of a process are revoked at once", () => {
  test.each(["exit", "throw", "memory"] as const)("when it ends by itself: %s", async (how) => {
    await using program = await Guarded.start(optionsOf(), [`end/${how}`], how);
    await program.end();

    expect(program.child.exitCode ?? program.child.signalCode).toBe(
      { exit: 3, throw: 1, memory: "SIGABRT" }[how],
    );
    await isGone(`end/${how}`);
  });

  test("also if it is killed while its guardian starts", async () => {
    const ends = Array.from({ length: 5 }, async (_, n) => {
      await using program = await Guarded.start(optionsOf(), [`early/${n}`]);
      await program.kill();
      await isGone(`early/${n}`);
    });
    await Promise.all(ends);
  });

  test("also if a manager such as PM2 kills it with all of its descendants", async () => {
    await using program = await Guarded.start(optionsOf(), ["tree/a"], "wait", IN_PM2);
    const guardian = await guardianOf(program);
    await program.kill();

    await isGone("tree/a");
    await expect.poll(() => isRunning(guardian)).toBe(false);
  });

  test("those of all its clusters, by one guardian", async () => {
    const names = ["many/a", "many/b", "many/c"];
    await using program = await Guarded.start(optionsOf(), names);
    expect(program.guardians).toHaveLength(1);
    await program.kill();

    for (const name of names) await isGone(name);
  });

  test("those of a worker thread, when it has ended", async () => {
    const words = [JSON.stringify(optionsOf()), "thread/a", "wait"];
    const worker = new Worker(GUARDED_PROGRAM, { argv: words, stdin: true, stdout: true });
    await new Said(worker).next();
    expect(await places("thread/a")).toHaveLength(1);
    await worker.terminate();

    await isGone("thread/a");
  });

  test("when etcd is back, if it was away", async () => {
    await using own = await startEtcd();
    await using program = await Guarded.start({ ...optionsOf(), hosts: own.endpoints }, ["away/a"]);
    own.member.pause();
    const [guardian = 0] = program.guardians;
    await program.kill();
    expect(isRunning(guardian)).toBe(true);
    own.member.resume();

    await expect.poll(() => placesOf(own.member, "away/a")).toEqual([]);
    await expect.poll(() => isRunning(guardian)).toBe(false);
  });

  test("when etcd is back, if it was away for longer than the TTL: it gives each lease its whole TTL again", async () => {
    const TTL_SECONDS = 3;
    await using own = await startEtcd();
    const options = { ...optionsOf(TTL_SECONDS), hosts: own.endpoints };
    await using program = await Guarded.start(options, ["long/a"]);
    const [guardian = 0] = program.guardians;
    await own.member.kill();
    await program.kill();
    // An etcd that was not away says when the TTL is over.
    const granted: unknown = await etcd.member.gateway("/v3/lease/grant", { TTL: TTL_SECONDS + 1 });
    await expect.poll(() => leasesOf(etcd.member)).not.toContain(BigInt((granted as { ID: string }).ID));
    expect(isRunning(guardian)).toBe(true);
    await own.member.restart();

    await expect.poll(() => placesOf(own.member, "long/a")).toEqual([]);
    expect((await own.member.metrics()).get("etcd_debugging_server_lease_expired_total")).toBe(0);
    await expect.poll(() => isRunning(guardian)).toBe(false);
  });

  test("but for one that was asked to end and does not reach etcd: it ends after a TTL", async () => {
    await using own = await startEtcd();
    await using program = await Guarded.start({ ...optionsOf(2), hosts: own.endpoints }, ["asked/a"]);
    // It has begun: it ignores signals from then on.
    await program.killGuardian();
    const [guardian = 0] = program.guardians;
    await own.member.kill();
    await program.kill();
    process.kill(guardian, "SIGTERM");
    expect(isRunning(guardian)).toBe(true);

    await expect.poll(() => isRunning(guardian)).toBe(false);
  });

  test("over TLS, and with a password that no other process can see", async () => {
    const authority = makeAuthority("guarded");
    const files = await writeServerFiles(authority, authority.issue("etcd"));
    await using secure = await startEtcd({ clientTls: files });
    const credentials = { rootCertificate: authority.certificate.toString() };
    await using over = await Guarded.start({ ...optionsOf(), hosts: secure.endpoints, credentials }, [
      "tls/a",
    ]);
    await over.kill();
    await expect.poll(() => placesOf(secure.member, "tls/a")).toEqual([]);
    // An authority that Node.js itself trusts, in a file beside the program.
    const setting = {
      cwd: path.dirname(files.ca),
      env: { ...process.env, NODE_EXTRA_CA_CERTS: path.basename(files.ca) },
    };
    await using trusting = await Guarded.start(
      { ...optionsOf(), hosts: secure.endpoints },
      ["tls/b"],
      "wait",
      setting,
    );
    await trusting.kill();
    await expect.poll(() => placesOf(secure.member, "tls/b")).toEqual([]);
    await files.remove();

    const users = await startWithUsers();
    onTestFinished(() => users.etcd.stop());
    await using program = await Guarded.start({ ...optionsOf(), hosts: users.endpoints, auth: WORKER }, [
      "jobs/a",
    ]);
    const [guardian = 0] = program.guardians;
    for (const file of ["cmdline", "environ"])
      expect(readFileSync(`/proc/${guardian}/${file}`, "utf8")).not.toContain(WORKER.password);
    await program.kill();
    await expect.poll(() => users.keysIn("jobs/a")).toEqual([]);
  });
});

describe("no lease is revoked", () => {
  test("of a process that is stopped in PM2: etcd expires it after its TTL", async () => {
    const before = (await expired()) ?? NaN;
    const name = "stopped/a";
    await using program = await Guarded.start(optionsOf(2), [name], "wait", IN_PM2);
    const guardian = await guardianOf(program);
    program.child.kill("SIGSTOP");

    await isGone(name);
    expect(await expired()).toBe(before + 1);
    expect(isRunning(guardian)).toBe(true);
  });

  test("that was orphaned before the process in PM2 ended: another one adopts it", async () => {
    const name = "orphan/a";
    await using program = await Guarded.start(optionsOf(), [name], "orphan", IN_PM2);
    const guardian = await guardianOf(program);
    await program.end();
    await expect.poll(() => isRunning(guardian)).toBe(false);

    await using cluster = connect(optionsOf());
    await using session = await Session.adopt(cluster, program.leases[0] ?? 0n);
    const lock = await new Mutex(session, name).lock();
    expect(lock.fence).toBe(program.fences[0]);
    await lock.release();
  });
});

test("a cluster without sessions has none, and the next session starts another", async () => {
  await using cluster = connect({ ...optionsOf(), guardian: true });
  expect(guardiansOf(process.pid)).toEqual([]);
  for (let n = 0; n < 2; n++) {
    await using session = await Session.open(cluster);
    expect(session.state).toBe("live");
    expect(guardiansOf(process.pid)).toHaveLength(1);
  }
  await expect.poll(() => guardiansOf(process.pid)).toEqual([]);
});

test("an etcd in this process cannot be guarded, nor what a client of etcd3 reaches", async () => {
  await using memory = await memoryEtcd();
  expect(() => connect({ hosts: memory.hosts, guardian: true })).toThrow(
    "Option guardian cannot be used with the hosts of memoryEtcd()",
  );
  expect(() => connect({ hosts: "a", guardian: "yes" as unknown as true })).toThrow(
    /^Expected guardian to be/,
  );
});
