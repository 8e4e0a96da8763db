import type { SimOptions } from "../../sim/run/sim-run.js";

/** What short runs have in common. */
const SHORT = { camp: 0, calls: 200, requests: 170, seconds: 30, quiet: 0 } as const;

/** What a seed has found once. The settings are literal, so that they do not depend on the swarm. */
export const FOUND: readonly { readonly setting: Omit<SimOptions, "build">; readonly what: string }[] = [
  {
    what: "a call of a lost session that had been granted in between joined again without `rejoin`",
    setting: {
      ...{ seed: "88", version: "3.4", of: "election", ttlSeconds: 3, processes: 4, lanes: 4, names: 4 },
      ...{ camp: 0.2, calls: 200, seconds: 120, gapMs: [20, 200] },
      faults: [
        ...["pause-waiter", "kill-waiter", "delete-key", "revoke-lease", "compact"],
        ...["link-cut", "link-blackhole", "link-slow", "link-lossy"],
      ],
    },
  },
  {
    what: "the same, behind a holder that was paused",
    setting: {
      ...{ seed: "396", version: "3.7", of: "mutex", ttlSeconds: 5, processes: 4, lanes: 3, names: 2 },
      ...{ camp: 0.2, calls: 200, seconds: 120, gapMs: [1000, 8000] },
      faults: [
        ...["pause-worker", "pause-holder", "pause-waiter", "kill-holder", "kill-waiter", "clock-back"],
        ...["delete-key", "revoke-lease", "compact", "link-cut", "link-slow", "link-lossy"],
      ],
    },
  },
  {
    what: "lockAll resolved with a name whose key was gone when the last name's turn came: for long, the checker excused it",
    setting: {
      ...{ seed: "1395", version: "3.5", of: "lockall", ttlSeconds: 2, processes: 1, lanes: 4, names: 4 },
      ...{ camp: 1, calls: 200, seconds: 120, gapMs: [20, 200] },
      faults: [
        ...["clock-forth", "clock-back", "delete-key", "link-blackhole"],
        ...["link-lose-requests", "link-lose-answers", "link-slow"],
      ],
    },
  },
  {
    what: "the checker demanded that a process cut off from etcd is notified of a deletion before its deadline",
    setting: {
      ...{ seed: "276", version: "3.5", of: "mutex", ttlSeconds: 10, processes: 2, lanes: 4, names: 1 },
      ...{ camp: 0.2, calls: 200, seconds: 120, gapMs: [20, 200] },
      faults: [
        ...["pause-holder", "pause-waiter", "kill-holder", "delete-key", "compact", "link-cut", "link-slow"],
      ],
    },
  },
  {
    what: "a stream waited a growing pause after its token had been requested: the token was rejected again and again",
    setting: {
      ...{ seed: "10", version: "3.7", of: "mutex", ttlSeconds: 2, processes: 4, lanes: 2, names: 1 },
      ...{ camp: 1, calls: 200, seconds: 120, gapMs: [20, 200], faults: ["tokens"], auth: true, members: 1 },
    },
  },
  {
    what: "the checker called a write of lockAll() stale because another of its names had lost its key before the grant",
    setting: {
      ...{ seed: "3", version: "3.4", of: "lockall", ttlSeconds: 3, processes: 3, lanes: 1, names: 4 },
      ...{ camp: 0.7, calls: 200, seconds: 120, gapMs: [20, 200], faults: ["delete-key"], auth: false },
      members: 3,
    },
  },
  {
    what: "the checker demanded the notification of a deletion from a process whose link was up for a tenth of a second at a time",
    setting: {
      ...{ seed: "16", version: "3.4", of: "mutex", ttlSeconds: 10, processes: 3, lanes: 4, names: 3 },
      ...{ camp: 0.5, calls: 200, seconds: 120, gapMs: [20, 200], faults: ["link-cut", "delete-key"] },
      ...{ auth: false, members: 1 },
    },
  },
  {
    what: "the run looked for idle keys in the moment in which a slow link delivered the request of a call that had ended",
    setting: {
      ...{ seed: "29566", version: "3.6", of: "rwlock", ttlSeconds: 2, processes: 4, lanes: 2, names: 4 },
      ...{ ...SHORT, gapMs: [2, 20], auth: false, members: 1 },
      faults: [
        ...[
          "pause-waiter",
          "kill-waiter",
          "clock-forth",
          "clock-back",
          "revoke-lease",
          "compact",
          "link-cut",
        ],
        ...["link-slow", "quota", "tokens", "suspend-holder"],
      ],
    },
  },
  {
    what: "the checker demanded the grant of a permit before the lease of the dead waiter before it had ended",
    setting: {
      ...{ seed: "19592", version: "3.7", of: "semaphore", ttlSeconds: 3, processes: 4, lanes: 4, names: 4 },
      ...{ ...SHORT, gapMs: [20, 200], auth: false, members: 3, only: [0] },
      faults: [
        ...["kill-waiter", "delete-key", "link-lossy", "quota", "tokens", "pause-leader", "pause-follower"],
        ...["kill-leader", "kill-follower", "isolate-leader", "lag-member", "move-leader"],
      ],
    },
  },
  {
    what: "the checker gave all elections four seconds, and five votes in a row were split",
    setting: {
      ...{ seed: "21423", version: "3.4", of: "rwlock", ttlSeconds: 2, processes: 4, lanes: 3, names: 2 },
      ...{ ...SHORT, gapMs: [2, 20], auth: false, members: 3, only: [1] },
      faults: [
        ...["pause-worker", "pause-holder", "kill-holder", "clock-forth", "clock-back", "delete-key"],
        ...["revoke-lease", "compact", "link-cut", "suspend-holder", "kill-follower", "restart-etcd"],
        ...["cut-off", "shatter", "slow-disk-leader", "lag-member"],
      ],
    },
  },
  {
    what: "the checker demanded a token while all members of 3.4 waited seven seconds for a read index that was lost",
    setting: {
      ...{ seed: "48514", version: "3.4", of: "rwlock", ttlSeconds: 2, processes: 4, lanes: 4, names: 1 },
      ...{ ...SHORT, gapMs: [100, 800], auth: true, members: 3, only: [0, 1, 2, 3, 4, 5] },
      faults: [
        ...["pause-waiter", "kill-holder", "clock-forth", "clock-back", "delete-key", "revoke-lease"],
        ...[
          "link-blackhole",
          "link-lose-answers",
          "link-slow",
          "link-lossy",
          "quota",
          "tokens",
          "pause-leader",
        ],
        ...["kill-leader", "isolate-follower", "cut-off", "majority-ring", "shatter", "slow-disk-follower"],
        "lag-member",
      ],
    },
  },
  {
    what: "the run recorded the end of a fault after the next fault of its kind had begun, and the checker took both for one",
    setting: {
      ...{ seed: "2280", version: "3.4", of: "lockall", ttlSeconds: 3, processes: 2, lanes: 1, names: 4 },
      ...{ ...SHORT, gapMs: [100, 800], auth: true, members: 3, only: [0, 1, 2, 3, 4, 10] },
      faults: [
        ...["pause-worker", "pause-holder", "kill-holder", "clock-forth", "delete-key", "revoke-lease"],
        ...["kill-leader", "kill-follower", "isolate-leader"],
      ],
    },
  },
  {
    what: "a recovery from one fault ended when any other one began, and the outage counted as a refusal of tokens",
    setting: {
      ...{ seed: "134202", version: "3.4", of: "election", ttlSeconds: 2, processes: 3, lanes: 2, names: 1 },
      ...{ ...SHORT, gapMs: [100, 800], auth: true, members: 3, only: [1, 2, 6] },
      faults: [
        ...["pause-holder", "kill-holder", "clock-back", "revoke-lease", "link-cut", "link-lose-answers"],
        ...["tokens", "isolate-leader", "isolate-follower", "slow-disk-leader", "slow-disk-follower"],
      ],
    },
  },
  {
    what: "the checker took two of three places for those of a call that had been granted older ones",
    setting: {
      ...{ seed: "189546", version: "3.4", of: "lockall", ttlSeconds: 5, processes: 1, lanes: 4, names: 3 },
      ...{ ...SHORT, gapMs: [100, 800], auth: false, members: 3, only: [0, 1] },
      faults: [
        ...["pause-holder", "pause-waiter", "kill-waiter", "clock-back", "delete-key", "revoke-lease"],
        ...["compact", "link-cut", "link-blackhole", "link-slow", "link-lossy", "tokens", "pause-follower"],
        ...["kill-follower", "cut-off", "slow-disk-leader", "move-leader"],
      ],
    },
  },
  {
    what: "the simulated member opened a stream of a paused process after the link had been cut, and never closed it",
    setting: {
      ...{ seed: "116683", version: "3.4", of: "lockall", ttlSeconds: 2, processes: 3, lanes: 2, names: 4 },
      ...{ ...SHORT, gapMs: [2, 20], auth: false, members: 1, only: [0, 1] },
      faults: [
        ...["pause-holder", "pause-waiter", "kill-waiter", "delete-key", "compact", "link-cut"],
        ...["link-blackhole", "link-lose-answers", "quota"],
      ],
    },
  },
  {
    what: "the checker took two of three places for those of a call that was granted younger ones while they were there",
    setting: {
      ...{ seed: "962460", version: "3.7", of: "lockall", ttlSeconds: 10, processes: 4, lanes: 4, names: 3 },
      ...{ ...SHORT, gapMs: [2, 20], auth: false, members: 1, only: [0, 1, 2, 3, 8, 9, 15, 16, 17] },
      faults: [
        ...["pause-holder", "pause-waiter", "kill-waiter", "clock-forth", "clock-back", "delete-key"],
        ...["revoke-lease", "tokens"],
      ],
    },
  },
  {
    what: "a simulated member executed what it had read behind its GOAWAY, and the client sent it again",
    setting: {
      ...{ seed: "4826", version: "3.6", of: "semaphore", ttlSeconds: 3, processes: 1, lanes: 4, names: 2 },
      ...{ ...SHORT, gapMs: [2, 20], auth: true, members: 1, transport: true, only: [1] },
      faults: [
        ...["pause-waiter", "kill-holder", "kill-waiter", "link-cut", "link-lose-requests"],
        ...["link-lose-answers", "link-slow", "tokens", "reorder", "late-answers", "goaway"],
      ],
    },
  },
  {
    what: "a simulated member accepted a connection again that the link had cut while its process was paused",
    setting: {
      ...{ seed: "3725", version: "3.5", of: "election", ttlSeconds: 5, processes: 1, lanes: 2, names: 2 },
      ...{ ...SHORT, gapMs: [100, 800], auth: false, members: 1, transport: true, only: [0, 2, 3] },
      faults: [
        ...["pause-worker", "pause-waiter", "kill-holder", "clock-back", "revoke-lease", "link-cut"],
        ...["link-lose-requests", "link-lose-answers", "link-slow", "tokens", "suspend-holder"],
        ...["reorder", "late-answers"],
      ],
    },
  },
  {
    what: "lockAll resolved with a name that was lost: one transaction deleted its key, and the key before the last name's",
    setting: {
      ...{ seed: "1378", version: "3.7", of: "lockall", ttlSeconds: 5, processes: 3, lanes: 1, names: 3 },
      ...{ ...SHORT, gapMs: [20, 200], auth: false, members: 1 },
      faults: [
        ...["kill-holder", "compact", "link-blackhole", "link-lose-answers", "link-lossy", "tokens"],
        ...["suspend-holder", "delete-keys"],
      ],
    },
  },
  {
    what: "a signal aborted 1,170 ms after `held` was false, while a renewal was to show why the key was gone",
    setting: {
      ...{ seed: "49", version: "3.7", of: "lockall", ttlSeconds: 3, processes: 1, lanes: 3, names: 2 },
      ...{ ...SHORT, gapMs: [20, 200], auth: false, members: 1 },
      faults: [
        ...["pause-worker", "pause-holder", "kill-holder", "kill-waiter", "delete-key", "compact"],
        ...["link-cut", "link-lose-requests", "link-slow", "tokens"],
      ],
    },
  },
  {
    what: "a reentrant withLock entered a hold that was not held",
    setting: {
      ...{ seed: "93", version: "3.5", of: "reentrant", ttlSeconds: 3, processes: 2, lanes: 2, names: 2 },
      ...{ camp: 1, calls: 200, seconds: 120, gapMs: [1000, 8000], auth: true, members: 1 },
      faults: [
        ...["pause-waiter", "clock-forth", "purge", "revoke-lease", "link-cut", "link-lose-answers"],
        ...["link-slow", "tokens"],
      ],
    },
  },
  {
    what: "a lock was granted in the last 10 ms of its lease: `held` was false, since the clock that counts suspend has steps",
    setting: {
      ...{ seed: "164", version: "3.7", of: "mutex", ttlSeconds: 3, processes: 4, lanes: 2, names: 1 },
      ...{ ...SHORT, gapMs: [5, 50], auth: false, members: 1 },
      faults: ["delete-key", "delete-keys", "link-slow"],
    },
  },
];
