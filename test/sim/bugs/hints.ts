// Where to look for the lab's mutants: the lab's own hunts in the words of the simulation's faults, or a script of the situation.
import type { Ground, Hints } from "./hunt.js";

const at = (hints: Hints = {}): Ground => ({ hints });

const OFTEN: Hints = { gapMs: [200, 2000] };
/** Requests and answers that are lost, late or executed after their caller gave up. */
const LATE: Hints = { ...OFTEN, faults: ["link-slow", "link-lossy"] };
/** Many calls at a time in each process, so that they share requests. */
const CROWD: Hints = { ...LATE, of: "mutex", processes: 2, lanes: 8, names: 4, camp: 0 };

/** Over the client's own HTTP/2 and gRPC, with one of its faults. */
const OVER: Hints = { transport: true, quiet: 0, gapMs: [20, 200], camp: 0 };

const MANY: Hints = { of: "mutex", processes: 2, lanes: 4, names: 4 };
/** Of a candidate: with its key, more than the 65,535 bytes that a new connection may send. */
const LONGEST_VALUE = 65_536;

/** Each session has a delay. */
const DELAYED: Hints = { ttlSeconds: 3, releaseDelayMs: 3000 };

/** Two processes that take the same locks again and again. */
const NEWEST: Ground = at({ ...MANY, names: 1, newest: true, ...OFTEN });
/** Calls with priorities, most of which wait. */
const RANKED: Ground = at({ ...MANY, of: "priority", names: 1, gapMs: [20, 200], faults: ["link-slow"] });
const KEPT: Ground = at({
  ...{
    of: "mutex",
    sticky: true,
    processes: 2,
    lanes: 1,
    names: 2,
    camp: 0,
    gapMs: [20, 200],
    faults: ["link-slow"],
  },
});

/** Members of one group, which come and go, and faults after which they have to share out anew. */
const GROUP: Hints = {
  ...{ of: "shards", processes: 3, lanes: 1, names: 1, shards: 8, calls: Infinity, requests: 600 },
  ...{ ttlSeconds: 3, seconds: 30, ...OFTEN, quiet: 0.05 },
  faults: ["kill-holder", "delete-key", "link-slow", "link-cut"],
};

/** Callers that ask for the same results, and faults by which runs are lost. */
const ASKED: Hints = {
  ...{ of: "results", processes: 3, lanes: 2, names: 1, calls: Infinity, requests: 600 },
  ...{ ttlSeconds: 3, seconds: 30, ...OFTEN, quiet: 0.05 },
  faults: ["kill-holder", "delete-key", "link-slow", "link-lose-answers", "link-lossy", "suspend-holder"],
};

/** Callers of the same latches and barriers, who die, and whose answers are lost or late. */
const MEET: Hints = {
  ...{ of: "rendezvous", processes: 3, lanes: 2, names: 2, calls: Infinity, requests: 600 },
  ...{ ttlSeconds: 3, seconds: 30, ...OFTEN, quiet: 0.05 },
  faults: ["kill-holder", "revoke-lease", "link-slow", "link-lossy", "link-lose-answers"],
};

/** Mutants that the simulation cannot show: it has no sockets of Node.js, whose events carry an async context. */
export const UNSIMULATED: ReadonlySet<string> = new Set(["context-inherited", "live-parent-revoked"]);

/** Where each other mutant is looked for. */
export const MUTANT_HUNTS: Readonly<Record<string, Ground>> = {
  "deadline-from-receipt": { workload: "late-then-silent" },
  "whole-ttl": at({ of: "mutex", faults: ["link-blackhole"], camp: 1, ...OFTEN }),
  "no-hasleader": at({
    ...{ of: "mutex", members: 3, faults: ["isolate-follower", "delete-key"], gapMs: [50, 200] },
    ...{ ttlSeconds: 120, processes: 6, lanes: 1, names: 12, camp: 1 },
  }),
  "unguarded-release": at({ of: "mutex", ...LATE, processes: 1, lanes: 1, names: 1, camp: 0 }),
  "fence-not-checked": at({
    ...{ of: "mutex", faults: ["pause-holder", "link-slow"], gapMs: [20, 200], ttlSeconds: 2 },
    ...{ processes: 4, lanes: 4, names: 1, camp: 0, calls: 400 },
  }),
  "watch-trusted-on-created": at({ of: "mutex", faults: ["link-cut"], gapMs: [20, 200] }),
  "own-end-ignored": at({ of: "mutex", ...OFTEN, faults: ["purge"], lanes: 4, names: 1 }),
  // A deletion between the answer of etcd and its receipt, which a watch overtakes: many short runs, in which keys come and go.
  "read-outranks-deletion": at({
    ...{ of: "mutex", faults: ["delete-key", "delete-keys", "purge"], gapMs: [1, 10], quiet: 0 },
    ...{ processes: 4, lanes: 1, names: 2, camp: 0, requests: 170, seconds: 30 },
  }),
  "granted-without-last-read": at({
    ...{ of: "lockall", faults: ["delete-key", "delete-keys"], gapMs: [1, 10], quiet: 0 },
    ...{ processes: 4, lanes: 1, names: 4, camp: 0, requests: 170, seconds: 30 },
  }),
  "held-a-turn-later": at({ of: "mutex" }),
  "signal-late": at({ of: "mutex", faults: ["pause-holder"], ttlSeconds: 2, camp: 0.5, ...OFTEN }),
  "read-before-watch": at({ of: "mutex", ...LATE }),
  "stale-answer-accepted": { workload: "stale-member" },
  "cleanup-not-retried": at({ of: "mutex", ...OFTEN, faults: ["link-lose-requests", "link-lossy"] }),
  "delay-forgotten": at({ ...OFTEN, of: "mutex", faults: ["kill-holder"], names: 1, ...DELAYED }),
  "delay-key-left-behind": at({ of: "mutex", ...DELAYED }),
  "delay-key-taken-for-its-entry": at({
    ...{ of: "mutex", faults: ["kill-holder", "delete-key", "link-slow", "link-cut"], gapMs: [20, 200] },
    ...{ processes: 4, lanes: 1, names: 1, ...DELAYED },
  }),
  "handle-before-probe": { workload: "etcd-proxy" },
  "join-in-doubt-left-behind": at({ of: "mutex", ...OFTEN, faults: ["link-lose-answers", "link-lossy"] }),
  "header-revision": at({ of: "mutex", ...OFTEN, faults: ["link-lose-answers", "link-lossy"] }),
  "waiters-not-told": at({ of: "mutex", ...OFTEN, faults: ["revoke-lease"], lanes: 4, names: 1 }),
  "local-wake-up-without-read": at({ of: "mutex", lanes: 4, names: 1, ...OFTEN }),
  "no-own-key-watch": at({ of: "mutex", faults: ["delete-key"], ttlSeconds: 10, camp: 0.5, ...OFTEN }),
  "old-term-accepted": { workload: "stalled-leader" },
  // Shorter than pings need to detect the dead connection.
  "one-connection-for-all": at({
    ...{ ...OVER, oneAddress: true, of: "mutex", members: 3, faults: ["pause-follower"], ttlSeconds: 6 },
    ...{ camp: 0.5, auth: false },
  }),
  "no-sweep": at({ of: "mutex", ...LATE, ttlSeconds: 10 }),
  "delete-overtakes-join": at({ of: "mutex", ...LATE, ttlSeconds: 10 }),
  "try-without-range": at({ of: "mutex", names: 1, lanes: 4, ...OFTEN }),
  "retry-taken-for-loss": { workload: "lost-release-answers" },
  "own-key-taken-for-anothers": { workload: "repeated-joins" },
  "one-name-in-one-batch": at(CROWD),
  "nested-names-in-one-batch": { workload: "nested-names" },
  "answers-mixed-up": at(CROWD),
  "revision-for-each": at({ ...CROWD, transport: true }),
  "unanswered-batch-not-sent": { workload: "lost-release-answers" },
  "reader-ignores-writers": at({ of: "rwlock", names: 2, ...OFTEN }),
  "reader-looks-on-one-side": at({ of: "rwlock", names: 2, ...OFTEN }),
  "writer-ignores-readers": at({ of: "rwlock", names: 2, ...OFTEN }),
  "reader-before-the-downgrade": at({ of: "rwlock", names: 2, ...OFTEN }),
  "reader-passes-behind-a-downgrade": at({ of: "rwlock", names: 2, ...OFTEN }),
  // A writer claims for several TTLs after it has become a reader.
  "downgrade-unwatched": at({ of: "rwlock", names: 1, ttlSeconds: 2, camp: 1, faults: [], lanes: 2 }),
  "downgrade-by-a-new-key": at({ of: "rwlock", names: 2, ...OFTEN }),
  "one-permit-too-many": at({ of: "semaphore", names: 2, ...OFTEN }),
  "heavy-waiter-overtaken": at({ of: "weighted", names: 2, ...OFTEN }),
  "weight-written-as-one": at({ of: "weighted", names: 2, ...OFTEN }),
  "own-number-rules": at({ of: "semaphore", names: 2, ...OFTEN }),
  // The waiters find out by themselves, within a second.
  "turn-not-told": { workload: "announced-grant" },
  "held-with-the-first": at({ of: "lockall", names: 4, ...OFTEN }),
  "joined-one-by-one": { workload: "crossing-lockalls" },
  "rest-not-given-back": at({
    ...{ of: "lockall", faults: ["delete-key"], camp: 0.7, processes: 3, lanes: 1, names: 4 },
    ...{ gapMs: [20, 200] },
  }),
  "proclaimed-unguarded": at({
    ...{ of: "election", faults: ["delete-key", "link-slow", "link-lossy"], gapMs: [20, 200] },
    ...{ names: 2, camp: 0, calls: 400 },
  }),
  "vacancy-not-told": { workload: "observers" },
  "youngest-observed": { workload: "observers" },
  "wanted-after-the-end": at({ of: "mutex", wanted: true, camp: 0.5, names: 1 }),
  "joins-lost-with-the-stream": { workload: "joined-while-moving" },
  "old-join-believed": at({
    ...{ of: "mutex", wanted: true, camp: 0.2, members: 3, names: 1, quiet: 0, gapMs: [20, 200] },
    faults: ["lag-member", "link-cut", "link-blackhole"],
  }),
  ...{ "kept-though-asked": KEPT, "turn-while-asked": KEPT, "turn-repeated": KEPT },
  "kept-key-s-joins-lost": at({
    ...{ of: "mutex", sticky: true, processes: 2, lanes: 1, names: 1, camp: 0, gapMs: [100, 400], quiet: 0 },
    ...{ calls: 200, faults: ["link-cut", "restart-etcd"] },
  }),
  "holder-superseded": NEWEST,
  // Few calls, of several processes: the queue must be empty again when the lost answer is asked for once more.
  "superseded-call-returns": at({
    ...{ of: "mutex", names: 1, newest: true, processes: 3, lanes: 1, camp: 0, quiet: 0, gapMs: [20, 200] },
    ...{ faults: ["link-lose-answers", "link-lossy"] },
  }),
  "older-call-left-waiting": NEWEST,
  "full-queue-entered": at({ ...MANY, of: "mutex", names: 1, maxWaiting: 1, ...OFTEN }),
  "better-call-overtaken": RANKED,
  "priority-ignored": RANKED,
  "fence-of-the-place": RANKED,
  "key-gone-before-its-watch": RANKED,
  "transfer-to-a-dead-candidate": { workload: "transfers" },
  "guard-outlives-its-hold": at({
    ...{ of: "mutex", sticky: true, processes: 1, lanes: 1, names: 1, camp: 0, gapMs: [100, 800], quiet: 0 },
    ...{ ttlSeconds: 10, calls: 600, faults: ["link-slow", "link-lossy", "link-lose-requests"] },
  }),
  "deadline-not-shared": at({
    of: "mutex",
    faults: ["block-holder"],
    ...OFTEN,
    ttlSeconds: 2,
    maxStallMs: 120_000,
    camp: 1,
  }),
  "beat-ignored": at({
    of: "mutex",
    faults: ["block-holder"],
    ...OFTEN,
    ttlSeconds: 2,
    maxStallMs: 2000,
    camp: 1,
  }),
  "gap-not-replayed": { workload: "observers" },
  "refusal-dropped": { workload: "refused-renewal" },
  "member-taken-for-cluster": { workload: "learner" },
  "token-not-renewed": at({ of: "mutex", auth: true, faults: ["tokens"], gapMs: [20, 200] }),
  "lost-answer-taken-for-rejection": at({ ...OVER, faults: ["calm"] }),
  "rejection-never-executed": { workload: "crossed-quota" },
  "doubt-never-ended": at({ of: "mutex", ...OFTEN, faults: ["link-lose-answers", "link-lossy"] }),
  "window-update-lost": at({ ...OVER, of: "election", valueBytes: LONGEST_VALUE, faults: ["delete-key"] }),
  "answer-to-another-call": at({ ...OVER, ...MANY, quiet: undefined, faults: ["reorder"] }),
  "goaway-forgets-calls": at({ ...OVER, ...MANY, faults: ["goaway-releases"], ttlSeconds: 10 }),
  "goaway-taken-for-answer": at({ ...OVER, ...MANY, faults: ["goaway-releases"], ttlSeconds: 10 }),
  "late-answer-accepted": at({ ...OVER, ...MANY, faults: ["late-answers"], ttlSeconds: 10 }),
  "closed-stream-goes-on": at({ ...OVER, members: 3, faults: ["late-answers", "link-slow"] }),
  "moved-before-the-next-stands": at(GROUP),
  "owned-by-the-view": at(GROUP),
  "drain-ignored": at(GROUP),
  "older-members-ruled-by": at(GROUP),
  "work-begun-after-its-lock": at({ ...GROUP, faults: ["pause-holder"], ttlSeconds: 2 }),
  // etcd refuses to store that the member leaves, and somebody deletes the keys of all members.
  "let-go-unseen": at({ ...GROUP, ...DELAYED, faults: ["quota", "revoke-lease", "purge"], gapMs: [20, 100] }),
  "moved-to-itself": at({
    ...{
      ...GROUP,
      faults: ["late-answers", "link-slow", "purge"],
      shards: 16,
      processes: 4,
      gapMs: [5, 50],
      camp: 0,
    },
  }),
  "entries-known-by-their-objects": at({
    ...GROUP,
    gapMs: [20, 200],
    faults: ["link-cut", "compact", "delete-key"],
  }),
  "writes-reordered": at({ ...OVER, faults: ["delete-key"] }),
  "result-without-its-mark": at(ASKED),
  "replay-of-another-fingerprint": at(ASKED),
  "expired-mark-believed": at({ ...ASKED, processes: 1, lanes: 3 }),
  "told-done-before-the-result": at(ASKED),
  "lost-run-forgotten": at({ ...ASKED, seconds: 60, requests: 900 }),
  "lost-run-repeated": at(ASKED),
  "given-back-empty": at({ ...ASKED, faults: ["link-slow"], gapMs: [20, 200] }),
  "counted-twice-after-a-lost-answer": at(MEET),
  "latch-opened-with-one-missing": at(MEET),
  "counter-s-repeated-put": at(MEET),
  // etcd executes the request that crosses its quota, but still rejects it.
  "refused-counter-stays": at({ ...MEET, faults: ["quota"], gapMs: [20, 100], processes: 4, lanes: 3 }),
  "unmarked-member-stays": at({ ...MEET, faults: ["quota"], gapMs: [20, 100], processes: 4, lanes: 3 }),
  "dead-counter-waited-for": at({
    ...MEET,
    processes: 2,
    lanes: 1,
    names: 4,
    faults: ["revoke-lease"],
    gapMs: [400, 800],
  }),
  "barrier-closed-again": at(MEET),
  "barrier-opened-with-one-missing": at(MEET),
  "barrier-opened-for-the-dead": at(MEET),
  "dead-member-waited-for": at(MEET),
  "left-before-the-others": at(MEET),
  "late-member-put": at(MEET),
};
