// `guardian: true`: the leases of a process are revoked when it has ended, and not before.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Guarded } from "../../support/programs/guarded.js";
import { isRunning } from "../../support/programs/process-state.js";

/** What is gone within the time of a poll, 10 s, was revoked, and has not expired. */
const LONG = 60;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const optionsOf = (ttlSeconds = LONG) => ({ hosts: etcd.endpoints, session: { ttlSeconds } });
const places = (name: string) => placesOf(etcd.member, name);
const isGone = (name: string) => expect.poll(() => places(name)).toEqual([]);
const expired = async () => (await etcd.member.metrics()).get("etcd_debugging_server_lease_expired_total");

describe("the leases of a process are revoked at once", () => {
  test("after kill -9", async () => {
    await using program = await Guarded.start(optionsOf(), ["end/kill"]);
    await program.kill();

    await isGone("end/kill");
    expect(await leasesOf(etcd.member)).not.toContain(program.leases[0]);
  });
});

describe("no lease is revoked", () => {
  test("of a process that is stopped: etcd expires it after its TTL", async () => {
    const before = (await expired()) ?? NaN;
    const name = "stopped/a";
    await using program = await Guarded.start(optionsOf(2), [name], "wait");
    const [guardian = 0] = program.guardians;
    program.child.kill("SIGSTOP");

    await isGone(name);
    expect(await expired()).toBe(before + 1);
    expect(isRunning(guardian)).toBe(true);
  });

  test("that was orphaned before the process ended: another one adopts it", async () => {
    const name = "orphan/a";
    await using program = await Guarded.start(optionsOf(), [name], "orphan");
    const [guardian = 0] = program.guardians;
    await program.end();
    await expect.poll(() => isRunning(guardian)).toBe(false);

    await using cluster = connect(optionsOf());
    await using session = await Session.adopt(cluster, program.leases[0] ?? 0n);
    const lock = await new Mutex(session, name).lock();
    expect(lock.fence).toBe(program.fences[0]);
    await lock.release();
  });
});

test("a guardian ends with the last session, and keeps no process alive", async () => {
  await using program = await Guarded.start(optionsOf(), ["close/a", "close/b"], "close");
  const [guardian = 0] = program.guardians;
  await program.end();

  expect(program.child.exitCode).toBe(0);
  await expect.poll(() => isRunning(guardian)).toBe(false);
  expect(await places("close/a")).toEqual([]);
});
