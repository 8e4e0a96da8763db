import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { ClusterLockManager, Election, lockAll, Mutex, RwLock, Semaphore } from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(10);
const jsonOf = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
const decimal = expect.stringMatching(/^\d+$/) as string;
const live = { held: true, remainingMs: expect.toSatisfy((ms) => Number.isInteger(ms) && ms > 0) as number };

describe("in JSON,", () => {
  test("an exclusive lock has its name, key, fence and remaining time, now and after its end", async () => {
    const lock = await new Mutex(two.session, "json/mutex").lock();
    const { name, key, fence } = lock;
    const about = { name, key, revision: String(fence), fence: String(fence), turn: 1 };

    expect(jsonOf(lock)).toEqual({ ...about, ...live });
    expect(BigInt((jsonOf({ lock }) as { lock: { fence: string } }).lock.fence)).toBe(fence);
    expect(inspect(lock)).toContain(`fence: ${fence}n`);
    await lock.release();
    expect(jsonOf(lock)).toEqual({ ...about, held: false, remainingMs: 0 });
  });

  test("a hold that others may share has no fence", async () => {
    const reader = await new RwLock(two.session, "json/rw").readLock();
    const permit = await new Semaphore(two.session, "json/permits", 2).acquire();

    for (const hold of [reader, permit]) {
      const { name, key, revision } = hold;
      expect(jsonOf(hold)).toEqual({ name, key, revision: String(revision), ...live });
    }
    await Promise.all([reader.release(), permit.release()]);
  });

  test("several locks at once have all names and keys, and one fence", async () => {
    const lock = await lockAll(two.session, ["json/a", "json/b"]);
    const { names, keys, fence } = lock;

    expect(jsonOf(lock)).toEqual({ names, keys, revision: String(fence), fence: String(fence), ...live });
    await lock.release();
  });

  test("a leadership is a lock, and a leader has decimal strings", async () => {
    const election = new Election(two.session, "json/election");
    const leadership = await election.campaign("me");
    const fence = String(leadership.fence);

    expect(jsonOf(leadership)).toMatchObject({ name: "json/election", fence, ...live });
    expect(jsonOf(await election.leader())).toMatchObject({ value: "me", fence, leaseId: decimal });
    await leadership.resign();
  });

  test("a lock of the Web Locks API is an empty object, as in browsers", async () => {
    const locks = new ClusterLockManager(two.cluster);

    expect(await locks.request("json/web", (lock) => jsonOf(lock))).toEqual({});
    await locks.close();
  });
});
