// Bugs of holds and of the sessions that they depend on.
import type { Bug } from "./bug.js";

export const HOLDS: readonly Bug[] = [
  {
    name: "deletion-not-reported-at-release",
    mended: {
      commit: "4bbe158",
      title: "Report a key that is gone at its release, unless requests are known to be sent twice",
    },
    lost: "A release() resolved although another client had deleted the key and the next holder had run beside the caller.",
    patches: [
      {
        file: "lock/hold/hold.js",
        from: "        if (this.#leaveBy || !lease.services.path.requestsAreRepeated)\n            throw this.#keyLoss();\n",
        to: "",
      },
    ],
    ground: { hints: { of: "mutex", faults: ["delete-key"], gapMs: [20, 200], ttlSeconds: 10 } },
  },
  {
    name: "granted-after-deadline",
    mended: { commit: "a5b03c7", title: "Hand out no lock whose deadline has passed" },
    lost: "Work was started under a lock that was over, after a pause of the process.",
    patches: [
      { file: "lock/hold/acquire.js", from: "if (!lease.over)\n", to: "if (!lease.signal.aborted)\n" },
      {
        file: "lock/queue/queue.js",
        from: "if (this.lease.over || waiter.gaveUp) {",
        to: "if (waiter.gaveUp) {",
      },
      {
        file: "lock/queue/queue.js",
        from: "if (joined && this.lease.over)",
        to: "if (joined && this.lease.signal.aborted)",
      },
    ],
    ground: {
      hints: { of: "mutex", faults: ["pause-worker", "pause-waiter"], gapMs: [20, 200], ttlSeconds: 2 },
    },
  },
  {
    name: "lost-own-watch",
    mended: {
      commit: "ff3a9df",
      title: "Watch the held key anew when its stream broke in the moment of the grant",
    },
    lost: "A deletion by hand was noticed only by the slow list of the keys.",
    patches: [
      {
        file: "lock/hold/key-watch.js",
        from: "    interrupted() {\n        this.watch();\n    }",
        to: "    interrupted() { }",
      },
    ],
    ground: {
      hints: {
        ...{ of: "mutex", faults: ["link-cut", "delete-key"], gapMs: [5, 60], camp: 0.5, ttlSeconds: 10 },
        ...{ processes: 3, lanes: 2, names: 2 },
      },
    },
  },
  {
    name: "hold-of-lock-all-kept",
    mended: { commit: "5c46b85", title: "Give back what lockAll joins after its session began to end" },
    lost: "The close() of a session waited for holds of lockAll() that no caller had.",
    patches: [
      {
        file: "lock/lock-all.js",
        from: "if (entries && (lease.over || this.#gaveUp))\n                    this.#leave(entries);\n                else if (entries)",
        to: "if (entries)",
      },
      {
        file: "lock/lock-all.js",
        from: "            if (this.lease.over || this.#gaveUp)\n                return this.#leave(entries);\n",
        to: "",
      },
    ],
    ground: { workload: "close-during-lockall" },
  },
  {
    name: "release-without-end",
    mended: { commit: "24af294", title: "Let release() resolve after one TTL at the latest" },
    lost: "A release() waited for the end of the session where renewals got through and deletes did not.",
    patches: [
      {
        file: "lock/hold/hold.js",
        from: "settleWithin(this.#queue.leave(this.#entry), limit, lease.services, { onTimeout });",
        to: "this.#queue.leave(this.#entry);",
      },
    ],
    ground: { workload: "unanswered-deletes" },
  },
  {
    name: "not-lost-for-session-listeners",
    mended: { commit: "fe2e0f6", title: "Keep a lost hold lost in its session's own abort listeners" },
    lost: "A listener of `session.signal` saw a lost lock whose signal was not aborted, and its release() resolved.",
    patches: [
      {
        file: "lock/hold/hold.js",
        from: "    get end() {\n        this.#endWithSession();\n",
        to: "    get end() {\n",
      },
      {
        file: "lock/hold/hold.js",
        from: "        if (lease.over)\n            this.#endWithSession();\n",
        to: "",
      },
      {
        file: "lock/hold/hold.js",
        from: "        this.#queue.lease.refresh();\n        this.#endWithSession();\n",
        to: "        this.#queue.lease.refresh();\n",
      },
    ],
    ground: { workload: "session-listener" },
  },
];
