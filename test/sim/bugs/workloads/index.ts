import type { Build } from "../../run/build.js";
import {
  crossedQuota,
  lateThenSilent,
  learner,
  lostReleaseAnswers,
  nestedNames,
  repeatedJoins,
} from "./answers.js";
import { lostTryAnswers, pausedWaiter, unnoticedEnd } from "./calls.js";
import { leadThroughLosses, observers, transfers } from "./elections.js";
import { staleMember, stalledLeader } from "./members.js";
import {
  announcedGrant,
  crossingLockAlls,
  joinedWhileMoving,
  rejectedAnnouncement,
  unansweredDeletes,
} from "./queues.js";
import {
  closeDuringLockAll,
  detachedKey,
  etcdProxy,
  failedOpening,
  orphanAndAdopt,
  refusedRenewal,
  sessionListener,
} from "./sessions.js";
import { World, type Workload } from "./world.js";

/** Calls that the lab's lanes do not make, by name. */
export const WORKLOADS = {
  "paused-waiter": pausedWaiter,
  "lost-try-answers": lostTryAnswers,
  "unnoticed-end": unnoticedEnd,
  "session-listener": sessionListener,
  "orphan-and-adopt": orphanAndAdopt,
  "refused-renewal": refusedRenewal,
  "failed-opening": failedOpening,
  "etcd-proxy": etcdProxy,
  "detached-key": detachedKey,
  "close-during-lockall": closeDuringLockAll,
  "lead-through-losses": leadThroughLosses,
  observers,
  transfers,
  "announced-grant": announcedGrant,
  "unanswered-deletes": unansweredDeletes,
  "rejected-announcement": rejectedAnnouncement,
  "late-then-silent": lateThenSilent,
  "lost-release-answers": lostReleaseAnswers,
  "crossed-quota": crossedQuota,
  learner,
  "repeated-joins": repeatedJoins,
  "nested-names": nestedNames,
  "stalled-leader": stalledLeader,
  "stale-member": staleMember,
  "crossing-lockalls": crossingLockAlls,
  "joined-while-moving": joinedWhileMoving,
} satisfies Record<string, Workload>;
export type WorkloadName = keyof typeof WORKLOADS;

/** One sentence per violation, by invariant. */
export async function runWorkload(
  name: WorkloadName,
  seed: number,
  build: Build,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const workload: Workload = WORKLOADS[name];
  const world = new World(seed, build, workload.etcd);
  await world.run(workload);
  return world.broken;
}
