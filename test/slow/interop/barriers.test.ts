// Barriers that members with Go's client and with leasehold share.
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Barrier, type Cluster, connect, DoubleBarrier } from "../../../src/index.js";
import { RecipeProgram, recipeProgram } from "../../support/clients/recipe-program.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { keysUnder, stillWaits } from "../../support/fixtures/rendezvous.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { BUILD_MS } from "../../support/programs/go-program.js";

const TTL_SECONDS = 2;

let etcd: EtcdCluster;
let cluster: Cluster;
let program: string | undefined;
let go: RecipeProgram | undefined;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  program = await recipeProgram().catch(
    (error: Error) => console.log(`not run: ${error.message}`) as undefined,
  );
}, BUILD_MS);
afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});
afterEach(() => go?.kill());

async function start(skip: (note: string) => void): Promise<RecipeProgram> {
  if (program === undefined) skip("no Go");
  return (go = await RecipeProgram.start(program as string, {
    addresses: etcd.endpoints,
    ttlSeconds: TTL_SECONDS,
  }));
}

const waiters = async (name: string) => (await keysUnder(etcd, `${name}/waiters/`)).length;
const came = async (name: string, count: number) =>
  void (await expect.poll(() => waiters(name), { timeout: 10_000 }).toBe(count));

describe("a barrier", () => {
  test("that Go holds stops leasehold until Go releases it", async ({ skip }) => {
    const other = await start(skip);
    await other.call("hold", "by-go");
    const ours = new Barrier(cluster, "by-go");
    expect(await ours.hold()).toBe(false);
    const waiting = ours.wait();
    expect(await stillWaits(cluster, waiting)).toBe(true);
    await other.call("release", "by-go");
    await waiting;
  });

  test("that leasehold holds stops Go until leasehold releases it", async ({ skip }) => {
    const other = await start(skip);
    const ours = new Barrier(cluster, "by-us");
    await ours.hold();
    await expect(other.call("hold", "by-us")).rejects.toThrow(/key already exists/);
    const waiting = other.call("wait", "by-us");
    expect(await stillWaits(cluster, waiting)).toBe(true);
    await ours.release();
    await waiting;
    await other.call("wait", "by-us");
  });

  test("that leasehold holds is opened by Go's release", async ({ skip }) => {
    const other = await start(skip);
    const ours = new Barrier(cluster, "opened-by-go");
    await ours.hold();
    const waiting = ours.wait();
    await other.call("release", "opened-by-go");
    await waiting;
  });
});

describe("a double barrier", () => {
  /** Two members of each client, in the order of `turns`, enter and leave together, round after round. */
  test.for([
    ["go", "us", "go", "us"],
    ["us", "us", "go", "go"],
    ["go", "go", "us", "us"],
    ["us", "go", "go", "us"],
  ] as const)("is entered and left together, in the order %s %s %s %s", async (turns, { skip }) => {
    const other = await start(skip);
    const name = `mixed/${turns.join("-")}`;
    const members = turns.map((turn, member) => {
      const ours = new DoubleBarrier(cluster, name, turns.length);
      const of = { member, members: turns.length };
      return turn === "us"
        ? { enter: () => ours.enter(), leave: () => ours.leave() }
        : { enter: () => other.call("enter", name, of), leave: () => other.call("leave", name, of) };
    });
    for (let round = 0; round < 3; round++) {
      const entering: Promise<void>[] = [];
      for (const [n, member] of members.entries()) {
        if (n === turns.length - 1) expect(await stillWaits(cluster, Promise.race(entering))).toBe(true);
        entering.push(member.enter());
        if (n < turns.length - 1) await came(name, n + 1);
      }
      await Promise.all(entering);
      const [first, ...others] = round === 1 ? [...members].reverse() : members;
      const leaving = others.map((member) => member.leave());
      expect(await stillWaits(cluster, Promise.race(leaving))).toBe(true);
      await first?.leave();
      await Promise.all(leaving);
      await came(name, 0);
    }
  });

  test("has no room for a further one of either client", async ({ skip }) => {
    const other = await start(skip);
    const ours = new DoubleBarrier(cluster, "room", 2);
    const entering = ours.enter();
    await came("room", 1);
    await Promise.all([entering, other.call("enter", "room", { member: 1, members: 2 })]);
    await expect(other.call("enter", "room", { member: 2, members: 2 })).rejects.toThrow(/too many clients/i);
    await expect(new DoubleBarrier(cluster, "room", 2).enter()).rejects.toMatchObject({
      code: "BARRIER_FULL",
    });
    await Promise.all([ours.leave(), other.call("leave", "room", { member: 1 })]);
  });

  test("tells leasehold of a member in Go that is killed -9 while both wait", async ({ skip }) => {
    const other = await start(skip);
    const ours = new DoubleBarrier(cluster, "killed", 3);
    const told = reasonOf(ours.enter());
    await came("killed", 1);
    const entering = reasonOf(other.call("enter", "killed", { member: 1, members: 3 }));
    await came("killed", 2);
    expect(await stillWaits(cluster, Promise.race([told, entering]))).toBe(true);
    await other.kill();
    expect(await told).toMatchObject({ code: "BARRIER_BROKEN", phase: "enter", owners: [undefined] });
    await came("killed", 0);
  });
});
