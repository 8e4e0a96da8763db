// Bugs of the queues of one name: joins, waits and their ends.
import type { Bug } from "./bug.js";

export const QUEUES: readonly Bug[] = [
  {
    name: "granted-call-begins-again",
    mended: { commit: "7d9021a", title: "Reject a call that was granted just before its session had ended" },
    lost: "A call whose session ended between its grant and its answer joined again behind the others, without `rejoin`.",
    patches: [
      {
        file: "lock/queue/waiter.js",
        from: "        this.#lastRevision = entry.revision;\n",
        to: "",
      },
    ],
    ground: { workload: "paused-waiter" },
  },
  {
    name: "try-read-over-own-key",
    mended: {
      commit: "dead4b3",
      title: "Do not let a reader hold beside a writer, nor retry over its own key",
    },
    lost: "A tryReadLock() whose first answer was lost got a revision that its key did not have: it was lost at once, and its key stayed.",
    patches: [
      {
        file: "lock/queue/lock-mode.js",
        from: '    { kind: "created at", key, revision: 0n },\n',
        to: "",
      },
    ],
    ground: { workload: "lost-try-answers" },
  },
  {
    name: "refused-after-unnoticed-end",
    mended: {
      commit: "e188338",
      title: "Join once more with the next standing session when the last one has ended unnoticed",
    },
    lost: "The first call after an operator had revoked the lease was rejected, although it had joined nothing.",
    patches: [
      {
        file: "lock/hold/acquire.js",
        from: "if (error instanceof SessionLostError || error instanceof SessionClosedError)\n            return true;",
        to: "if (error instanceof SessionLostError || error instanceof SessionClosedError)\n            return false;",
      },
    ],
    ground: { workload: "unnoticed-end" },
  },
  {
    name: "unannounced-grant-not-looked-for",
    mended: {
      commit: "ed9dec9",
      title: "Let the waiter behind a waiter find a free permit within a second",
    },
    lost: "A free permit was handed over up to 30 s late after etcd had rejected a put, as under a quota alarm, or a waiter had died.",
    patches: [
      {
        file: "lock/queue/predecessor-wait.js",
        from: "this.#predecessor?.afterPut ? UNANNOUNCED_MS * this.ahead : Infinity;",
        to: "Infinity;",
      },
    ],
    ground: { workload: "rejected-announcement" },
  },
];
