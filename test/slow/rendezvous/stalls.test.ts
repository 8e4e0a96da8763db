// Barriers of a process that stands still while etcd answers.
import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { Barrier, Session } from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);

/** Nothing of this process runs. */
function standStill(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

test("a barrier is not held by a call whose session has ended before its answer is read", async () => {
  const session = await Session.open(two.cluster, { ttlSeconds: 2 });
  const barrier = new Barrier(session, "stalls");
  // Its lease for attempts is there after that.
  await new Barrier(two.cluster, "stalls/before").hold();

  const holding = reasonOf(barrier.hold({ onCrash: "break" }));
  await delay(0);
  standStill(4000);

  expect(await holding).toMatchObject({ code: "SESSION_LOST" });
});
