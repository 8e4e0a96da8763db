// A process that is killed -9 while others wait for it at a latch, and inside a double barrier.
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { CountDownLatch, DoubleBarrier } from "../../../src/index.js";
import { keysUnder, stillWaits } from "../../support/fixtures/rendezvous.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { owned } from "../../support/programs/owned.js";
import type { RendezvousTask } from "../../support/programs/rendezvous-program.js";
import { Said } from "../../support/programs/said.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/rendezvous-program.ts", import.meta.url));
const PATIENCE = { timeout: 20_000 };

const two = twoSessions(20);

test("those who wait are told of it within its TTL, neither counts nor hangs, and the next round is as any other", async () => {
  const [latch, barrier] = ["killed/latch", "killed/barrier"];
  const task: RendezvousTask = {
    hosts: two.etcd.endpoints,
    owner: "the killed one",
    latch: { name: latch, count: 2 },
    barrier: { name: barrier, members: 2 },
  };
  const child = owned(
    fork(PROGRAM, [JSON.stringify(task)], { stdio: ["ignore", 2, 2, "ipc"], execArgv: ["--import", "tsx"] }),
  );
  const said = new Said(child);
  await said.first((word) => word === "enlisted");
  const mine = new CountDownLatch(two.cluster, latch, 2);
  const [told, patient] = [reasonOf(mine.wait()), mine.wait({ onCrash: "continue" })];
  const member = new DoubleBarrier(two.cluster, barrier, 2);
  await member.enter();
  await said.first((word) => word === "inside");
  const leaving = reasonOf(member.leave());
  await mine.countDown();
  expect(await stillWaits(two.cluster, Promise.race([told, patient, leaving]))).toBe(true);

  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;

  expect(await told).toMatchObject({ code: "LATCH_BROKEN", why: "crashed", owner: "the killed one" });
  expect(await leaving).toMatchObject({ code: "BARRIER_BROKEN", phase: "leave", owners: ["the killed one"] });
  expect(await mine.count()).toBe(1);
  expect(await stillWaits(two.cluster, patient)).toBe(true);
  await mine.countDown();
  await patient;
  const again = [member, new DoubleBarrier(two.session, barrier, 2)];
  await Promise.all(again.map((each) => each.enter()));
  await Promise.all(again.map((each) => each.leave()));
  await expect.poll(() => keysUnder(two.etcd, `${barrier}/`), PATIENCE).toEqual([]);
});
