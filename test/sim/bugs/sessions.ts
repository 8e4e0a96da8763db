// Bugs of sessions that begin and end, and of elections.
import type { Bug } from "./bug.js";

export const SESSIONS: readonly Bug[] = [
  {
    name: "orphan-leaves-waiters",
    mended: { commit: "9575f87", title: "Wait in orphan() for the deletes of its waiting places" },
    lost: "An orphaned session left the entries of its waiting calls in their queues, where they blocked the next callers.",
    patches: [
      {
        file: "base/util/settle.js",
        from: "while (this.#running > 0)",
        to: "if (this.#running > 0)",
      },
      {
        file: "base/util/settle.js",
        from: "if (this.#running === 0)\n                return;",
        to: "return;",
      },
      {
        file: "base/util/settle.js",
        from: "if (this.#running > 0)\n            return;",
        to: "",
      },
    ],
    ground: { workload: "orphan-and-adopt" },
  },
  {
    name: "adopted-place-swept",
    mended: { commit: "dacd58d", title: "Keep an inherited place when its session sweeps up" },
    lost: "The sweep of late keys deleted an adopted place before a call had claimed it: the lock was free in between.",
    patches: [
      {
        file: "lock/session/key-audit.js",
        from: "return this.lease.adopted?.has(name, kv) ? undefined : name;",
        to: "return name;",
      },
    ],
    ground: { workload: "orphan-and-adopt" },
  },
  {
    name: "lease-of-failed-opening",
    mended: { commit: "8f6e2f3", title: "Wait in close() for the leases of failed openings" },
    lost: "The close() of a cluster left the lease of a failed opening to expire.",
    patches: [
      {
        file: "lock/session/connection.js",
        from: "    await pause(clock, options.requestTimeoutMs, revoked.signal);\n",
        to: "",
      },
    ],
    ground: { workload: "failed-opening" },
  },
  {
    name: "detached-key-kept",
    mended: {
      commit: "4c18892",
      title: "Delete the places of a session that closes, besides revoking its lease",
    },
    lost: "A key that a put by hand had taken away from its lease outlived the close() of its session, and locked its name for ever.",
    patches: [
      {
        file: "lock/session/lease.js",
        from: "            deleteEntries(services, lease.entries(), { withinMs: leaseEndsMs, isIdle }),\n",
        to: "",
      },
    ],
    ground: { workload: "detached-key" },
  },
  {
    name: "lead-ends-with-the-term",
    mended: {
      commit: "856f861",
      title: "Campaign again when work throws because etcd has already ended its term",
    },
    lost: "A replica's lead() rejected, and never led again, when etcd rejected a guarded write of its work after a loss.",
    patches: [
      {
        file: "recipes/election/lead.js",
        from: "        const led = await leadership.resign().then(() => true, () => false);\n        if (failure && led && !this.#isStop(failure.error, handle))",
        to: "        await leadership.resign().catch(() => undefined);\n        if (failure && !lost && !this.#isStop(failure.error, handle))",
      },
    ],
    ground: { workload: "lead-through-losses" },
  },
  {
    name: "observers-miss-leaders",
    mended: { commit: "cc726a6", title: "Tell observers what happened while their watch was broken" },
    lost: "An observer did not receive the leaders that came and went while its watch was broken.",
    patches: [{ file: "observe/queue-watch.js", from: 'if (reason === "compacted")', to: "if (reason)" }],
    ground: { workload: "observers" },
  },
];
