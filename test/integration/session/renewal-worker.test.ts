// `renewal: "worker"`: a process whose main thread stands still keeps its locks, up to `maxStallMs`.
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { memoryEtcd } from "../../../src/testing/start.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Busy, hrtimeMs } from "../../support/programs/busy.js";

const TTL_SECONDS = 2;
const TTL_MS = TTL_SECONDS * 1000;
const LONG_MS = 60_000;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const optionsOf = (more: object = {}) => ({
  hosts: etcd.endpoints,
  session: { ttlSeconds: TTL_SECONDS },
  renewal: "worker" as const,
  maxStallMs: LONG_MS,
  ...more,
});

/** Waits for the lock. Returns when it was granted. */
async function nextAt(name: string): Promise<number> {
  await using cluster = connect({ hosts: etcd.endpoints });
  return await new Mutex(cluster, name).withLock(() => hrtimeMs());
}

// They mostly wait.
describe("a main thread that stands still", { concurrent: true }, () => {
  test("keeps its lock: the first line that runs then says so", async ({ expect }) => {
    await using program = await Busy.start(optionsOf(), "still/kept");
    const following = nextAt("still/kept");
    const after = await program.block(3 * TTL_MS);

    expect(after).toMatchObject({ held: true, aborted: false, fence: program.first.fence });
    expect(after.remainingMs).toBeGreaterThan(0);
    expect(await placesOf(etcd.member, "still/kept")).toHaveLength(2);
    expect(await program.end("close")).toBe(0);
    expect(await following).toBeGreaterThan(after.at);
  });

  test("loses it after maxStallMs: the first line says so, and the next holder comes after the deadline", async ({
    expect,
  }) => {
    const maxStallMs = TTL_MS;
    await using program = await Busy.start(optionsOf({ maxStallMs }), "still/lost");
    const following = nextAt("still/lost");
    const start = hrtimeMs();
    const after = await program.block(3 * (maxStallMs + TTL_MS));
    const at = await following;

    expect(after).toMatchObject({ held: false, aborted: true, remainingMs: 0, loss: "expired" });
    expect(after.error).toMatch(/this process did not run for .* maxStallMs \(2000\)/);
    const lastRenewal = after.at - (after.sinceLastRenewalMs ?? NaN);
    expect(at).toBeGreaterThanOrEqual(lastRenewal + 0.9 * TTL_MS);
    // It renewed until then, and no longer: etcd then needs a TTL, and looks at its leases every half of a second.
    expect(lastRenewal - start).toBeGreaterThan(maxStallMs / 4);
    expect(at - start).toBeLessThan(2 * (maxStallMs + TTL_MS));
  });

  test("is renewed again if it runs before the deadline", async ({ expect }) => {
    const maxStallMs = 3000;
    await using program = await Busy.start(
      optionsOf({ maxStallMs, session: { ttlSeconds: 3 } }),
      "still/again",
    );
    // The thread stops before that, as the last beat is up to a quarter of the limit old, and the last renewal up to a third of the TTL.
    for (let n = 0; n < 2; n++)
      expect(await program.block(maxStallMs + 100)).toMatchObject({ held: true, aborted: false });
    expect(await program.block(TTL_MS / 2)).toMatchObject({ held: true });
  });

  test("learns at once that its lease was revoked", async ({ expect }) => {
    await using program = await Busy.start(optionsOf(), "still/revoked");
    const blocked = program.block(1.5 * TTL_MS);
    await revoke(etcd.member, BigInt(`0x${program.first.lease}`));

    expect(await blocked).toMatchObject({ held: false, aborted: true, loss: "revoked" });
  });

  test("learns inside a loop, by a renewal of the thread, that its lease was revoked", async ({ expect }) => {
    const ttlSeconds = 6;
    await using program = await Busy.start(optionsOf({ session: { ttlSeconds } }), "still/watched");
    const watched = program.watch(2000 * ttlSeconds);
    await revoke(etcd.member, BigInt(`0x${program.first.lease}`));
    const revokedAt = hrtimeMs();
    const report = await watched;

    expect(report).toMatchObject({ held: false, aborted: true, loss: "revoked" });
    // A renewal is sent every third of the TTL, and its answer tells: the deadline would be another loss.
    expect(report.at - revokedAt).toBeLessThan(1000 * ttlSeconds);
  });

  test("keeps its lock while a member dies", async ({ expect }) => {
    await using three = await startEtcd({ members: 3 });
    await using program = await Busy.start(optionsOf({ hosts: three.endpoints }), "still/moved");
    const blocked = program.block(4 * TTL_MS);
    const leader = await three.leader();
    await leader.kill();

    expect(await blocked).toMatchObject({ held: true, aborted: false });
  });

  test("is not the same as a process that is stopped: that one loses its lock", async ({ expect }) => {
    await using program = await Busy.start(optionsOf(), "still/stopped");
    program.child.kill("SIGSTOP");
    await nextAt("still/stopped");
    program.child.kill("SIGCONT");

    expect(await program.block(0)).toMatchObject({ held: false, aborted: true });
  });
});

// More of it: test/slow/session/renewal-connections.
describe("everything else is as on the main thread", { concurrent: true }, () => {
  test("a session is orphaned and adopted", async ({ expect }) => {
    await using program = await Busy.start(optionsOf({ session: { ttlSeconds: 10 } }), "passed/a");
    expect(await program.end("orphan")).toBe(0);
    await using cluster = connect(optionsOf());
    await using session = await Session.adopt(cluster, BigInt(`0x${program.first.lease}`));
    const lock = await new Mutex(session, "passed/a").lock();

    expect(lock.fence).toBe(BigInt(program.first.fence));
    expect(await session.orphan()).toBe(session.leaseId);
  });

  test("renewals are counted and told", async ({ expect }) => {
    await using cluster = connect(optionsOf());
    const session = await cluster.session();
    const left = () => session.remainingMs();
    const first = left();
    // A renewal sets it back to nearly a TTL.
    await expect.poll(left).toBeLessThan(first - TTL_MS / 10);
    await expect.poll(left).toBeGreaterThan(first - TTL_MS / 10);
  });

  test("one cluster has several sessions, one after the other and beside each other", async ({ expect }) => {
    await using cluster = connect(optionsOf());
    for (let n = 0; n < 2; n++) {
      const sessions = await Promise.all([1, 2, 3].map(() => Session.open(cluster)));
      await Promise.all(sessions.map((session) => new Mutex(session, "many/a").withLock(() => n)));
      await Promise.all(sessions.map((session) => session.close()));
      expect(sessions.map(({ state }) => state)).toEqual(["closed", "closed", "closed"]);
    }
  });

  test("the guardian revokes at once what a worker thread renews", async ({ expect }) => {
    const options = optionsOf({ guardian: true, session: { ttlSeconds: 60 } });
    await using program = await Busy.start(options, "both/a");
    await program.kill();

    await expect.poll(() => placesOf(etcd.member, "both/a")).toEqual([]);
  });
});

describe("where it cannot be", () => {
  test("connect says so", async () => {
    await using memory = await memoryEtcd();
    expect(() => connect({ hosts: memory.hosts, renewal: "worker" })).toThrow(
      'Option renewal: "worker" cannot be used with the hosts of memoryEtcd()',
    );
    expect(() => connect({ hosts: "a", renewal: "thread" as "worker" })).toThrow(
      /^Expected renewal to be "main" or "worker", got/,
    );
    expect(() => connect({ hosts: "a", maxStallMs: 5000 })).toThrow(
      /^Option maxStallMs needs renewal: "worker"$/,
    );
    expect(() => connect({ hosts: "a", renewal: "worker", maxStallMs: 10 })).toThrow(
      /^Expected maxStallMs to be .*1000/,
    );
  });

  test("in a bundle without the file of the thread, or of the guardian", async () => {
    const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-bundle-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const dist = new URL("../../../dist/", import.meta.url);
    for (const file of ["leasehold.js", "leasehold-core.js"])
      copyFileSync(new URL(file, dist), path.join(folder, file.replace(/^leasehold.js$/, "bundle.mjs")));
    const bundle = (await import(pathToFileURL(path.join(folder, "bundle.mjs")).href)) as {
      connect: typeof connect;
    };

    expect(() => bundle.connect({ hosts: "a", renewal: "worker" })).toThrow(
      /^Option renewal needs leasehold-renewal.js beside leasehold, which a bundler has left out \(in Next\.js: serverExternalPackages: .* outputFileTracingIncludes: .*\)$/,
    );
    expect(() => bundle.connect({ hosts: "a", guardian: true })).toThrow(
      /leasehold-guardian.js beside leasehold/,
    );
  });
});
