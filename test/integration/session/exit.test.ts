import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { leasesOf } from "../../support/clients/server-view.js";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/exit-program.js", import.meta.url));
/** A process that is kept alive is killed after this time. */
const LIMIT_MS = 50_000;

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

/** Starts the program; it is killed at the end of the scope, or when it runs for too long. */
function start(closing: string) {
  const args = [PROGRAM, etcd.endpoints.join(), closing];
  const child = owned(spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] }));
  const late = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
  const said = new Said(child);
  const stop = () => {
    clearTimeout(late);
    child.kill("SIGKILL");
  };
  return { child, said, [Symbol.dispose]: stop };
}

async function ttlOf(leaseId: string): Promise<number> {
  const { TTL } = (await etcd.member.gateway("/v3/lease/timetolive", { ID: leaseId })) as { TTL: string };
  return Number(TTL);
}

describe.concurrent("a program that has used everything", { timeout: LIMIT_MS + 20_000 }, () => {
  test.for(["session", "cluster"])(
    "ends by itself once every %s is closed, without a warning or an unhandled rejection",
    async (closing, { expect }) => {
      using program = start(closing);

      const { stdout, ...end } = await program.said.ended;

      expect(end).toEqual({ code: 0, signal: null, stderr: "" });
      const { leases, ...done } = JSON.parse(stdout) as { leases: string[] };
      expect(done).toEqual({
        crowd: 100,
        waits: ["LockTimeoutError", "TimeoutError"],
        nested: true,
        lost: ["LOCK_LOST", "a listener's own", "session,lock,closed", 60],
        tried: true,
        same: true,
        complaints: [],
      });
      const left = await leasesOf(etcd.member);
      expect(leases.filter((leaseId) => left.has(BigInt(leaseId)))).toEqual([]);
    },
  );

  test("lives on, and renews, while a session is open", async ({ expect }) => {
    using program = start("nothing");
    const { leases } = JSON.parse(await program.said.next()) as { leases: string[] };

    // A renewal moves the remaining time of a TTL of 5 that etcd reports from 3 back to 4.
    for (const left of [3, 4, 3, 4]) await expect.poll(() => ttlOf(leases[0]!), { timeout: 5000 }).toBe(left);

    expect([program.child.exitCode, program.said.stderr]).toEqual([null, ""]);
  });
});
