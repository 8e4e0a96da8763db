// `guardian: true`, with the renewal in either thread, in processes that start others: node:cluster, fork, and a session that passes from one process to the next.
import { readdirSync, readlinkSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { GuardedCluster, type Member } from "../../support/programs/guarded-cluster.js";
import { Guarded } from "../../support/programs/guarded.js";
import { isRunning } from "../../support/programs/process-state.js";

/** What is gone within the time of a poll, 10 s, was revoked, and has not expired. */
const LONG = 60;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

let renewal: "main" | "worker";
const options = () => ({ hosts: etcd.endpoints, session: { ttlSeconds: LONG }, renewal });
const fencesOf = async (name: string) => (await placesOf(etcd.member, name)).map(({ revision }) => revision);
const isGone = (name: string) => expect.poll(() => fencesOf(name)).toEqual([]);
const expired = async () => (await etcd.member.metrics()).get("etcd_debugging_server_lease_expired_total");
/** A guardian that has ended revokes nothing any more. */
const guardianEnds = ({ guardians: [guardian = 0] }: Member) =>
  expect.poll(() => isRunning(guardian)).toBe(false);

async function withWorkers(folder: string) {
  const crew = await GuardedCluster.start(options(), `${folder}/primary`);
  const a = await crew.worker(options(), `${folder}/a`);
  const b = await crew.worker(options(), `${folder}/b`);
  return { crew, primary: crew.primary, a, b, [Symbol.asyncDispose]: () => crew[Symbol.asyncDispose]() };
}

describe.each(["main", "worker"] as const)("renewal: %s", (thread) => {
  beforeAll(() => void (renewal = thread));

  test("kill -9 of a worker of node:cluster frees its locks at once, and no others", async () => {
    await using all = await withWorkers("cluster");
    const { crew, primary, a, b } = all;
    const guardians = [primary, a, b].flatMap((each) => each.guardians);
    expect(new Set(guardians).size).toBe(3);
    await crew.kill(a);

    await isGone("cluster/a");
    await guardianEnds(a);
    expect(await fencesOf("cluster/b")).toEqual([b.fence]);
    expect(await fencesOf("cluster/primary")).toEqual([primary.fence]);
    expect([...(await leasesOf(etcd.member))]).toEqual(expect.arrayContaining([primary.lease, b.lease]));
  });

  test("kill -9 of the primary of node:cluster frees its locks and those of its workers, which end with it", async () => {
    await using all = await withWorkers("primary");
    const { crew, primary, a, b } = all;
    await crew.kill(primary);

    for (const name of ["primary", "a", "b"]) await isGone(`primary/${name}`);
    for (const each of [primary, a, b]) await guardianEnds(each);
    expect([a, b].filter(({ pid }) => isRunning(pid))).toEqual([]);
  });

  /** The sockets and pipes that a process has open, standard streams left out, such as `socket:[1234]`. */
  const openIn = (pid: number) =>
    readdirSync(`/proc/${pid}/fd`)
      .filter((fd) => Number(fd) > 2)
      .map((fd) => fileOf(`/proc/${pid}/fd/${fd}`))
      .filter((file) => /^(?:socket|pipe):/.test(file));

  function fileOf(link: string): string {
    try {
      return readlinkSync(link);
    } catch {
      // It has been closed meanwhile.
      return "";
    }
  }

  test("a child that lives on after kill -9 of its parent has no end of the pipe, and keeps no lock", async () => {
    await using program = await Guarded.start(options(), ["fork/a"], "fork");
    const { heir = 0 } = program;
    onTestFinished(() => void process.kill(heir, "SIGKILL"));
    // Both have what this process has got from its own parent.
    const before = openIn(process.pid);
    const ofParent = openIn(program.child.pid ?? 0).filter((file) => !before.includes(file));
    expect(ofParent).not.toEqual([]);
    expect(openIn(heir).filter((file) => ofParent.includes(file))).toEqual([]);
    await program.kill();

    await isGone("fork/a");
    expect(isRunning(heir)).toBe(true);
  });

  test("in a rolling restart of node:cluster, the new worker adopts the session of the old one, and its guardian guards it", async () => {
    const before = await expired();
    await using crew = await GuardedCluster.start(options(), "rolling/primary");
    const old = await crew.worker(options(), "rolling/a", "orphan");
    await crew.end(old);
    await guardianEnds(old);
    const fresh = await crew.worker({ ...options(), adopt: old.lease.toString(16) }, "rolling/a");
    expect(fresh).toMatchObject({ lease: old.lease, fence: old.fence });
    expect(fresh.guardians).toHaveLength(1);
    expect(await fencesOf("rolling/a")).toEqual([old.fence]);
    await crew.kill(fresh);

    await isGone("rolling/a");
    expect([...(await leasesOf(etcd.member))]).not.toContain(old.lease);
    expect(await expired()).toBe(before);
  });

  test.each(["alone", "in PM2"])("orphan() kills a guardian that does not answer, %s", async (place) => {
    const setting = place === "alone" ? {} : { env: { ...process.env, pm_id: "0" } };
    const name = `silent/${thread}/${place}`;
    await using program = await Guarded.start(options(), [name], "orphan", setting);
    const counts = place === "alone" ? [1, 0] : [0, 1];
    await expect.poll(() => [program.guardians.length, program.apart.length]).toEqual(counts);
    const [guardian = 0] = [...program.guardians, ...program.apart];
    process.kill(guardian, "SIGSTOP");
    await program.end();

    expect(program.child.exitCode).toBe(0);
    await expect.poll(() => isRunning(guardian)).toBe(false);
    expect(await fencesOf(name)).toEqual(program.fences);
  });
});
