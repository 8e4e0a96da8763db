// Each rule of the protocol that is easy to get wrong, broken on purpose in a copy of the build. The lab must notice.
import { t1, t2, type Hunt, type Mutant, type Patch } from "./mutant.js";
import { OTHERS } from "./others.js";
import { REFUSALS } from "./refusals.js";
import { RENDEZVOUS } from "./rendezvous.js";
import { RESULTS } from "./results.js";
import { SHARDS } from "./shards.js";
import { TRANSPORT } from "./transport.js";

/** Many calls at a time in each process, so that they share requests. */
const CROWD: Partial<Hunt> = { workers: 2, lanes: 12, names: 6, nested: true };

/** Without this, the lists of the lease's keys would find what these mutants leave behind before the lab does. */
const NO_SWEEP: Patch = { file: "lock/session/key-audit.js", from: "this.audit.add(this);", to: "" };

/** A deletion that some watch has reported is not known when the turn comes. */
const KNOWS_NOTHING: Patch = {
  file: "lock/queue/entry.js",
  from: "const isGone = watches.deletionOf(this.key, this.#madeAt) > (this.#revision ?? 0n);",
  to: "const isGone = false;",
};

const MUTEX: readonly Mutant[] = [
  {
    name: "deadline-from-receipt",
    wrong: "counts the deadline from the answer to a renewal instead of from its sending",
    patches: [
      {
        file: "etcd/keepalive.js",
        from: "listener.renewed(renewal.sent, ttlSeconds);",
        to: "listener.renewed(this.clock.now(), ttlSeconds);",
      },
    ],
    // etcd ends a lease up to half a second late, which hides the rest of the error in about half of the runs.
    hunt: t1(["late-then-silent"], { ttlSeconds: 9, seconds: 45, runs: 5, camp: 1, gapMs: [100, 200] }),
  },
  {
    name: "whole-ttl",
    wrong: "uses the whole TTL, and a little more",
    patches: [
      { file: "lock/session/lease.js", from: "const USED_PART = 0.9;", to: "const USED_PART = 1.3;" },
    ],
    hunt: t1(["link-blackhole"], { seconds: 30, camp: 1 }),
  },
  {
    name: "no-hasleader",
    wrong: "opens streams without `hasleader`: on a member that is cut off from its peers they stay silent",
    patches: [{ file: "etcd/http2/member.js", from: '[["hasleader", "true"]]', to: "[]" }],
    // Any call to that member would time out and so reveal the partition: only the streams are left to notice.
    hunt: t2(["isolate-follower", "delete-key"], {
      // One isolation that ends before the next renewal: an unanswered keepalive would also reveal it.
      ...{ ttlSeconds: 120, seconds: 30, gapMs: [50, 200], lastsMs: [27_000, 28_000] },
      // Each camps on its own lock from the start.
      ...{ workers: 6, lanes: 1, names: 12, camp: 1 },
    }),
  },
  {
    name: "unguarded-release",
    wrong: "deletes the key without comparing its create revision",
    patches: [
      {
        file: "lock/queue/txns.js",
        from: 'const isOurs = revision === undefined ? [{ kind: "value is", key, value }] : compare;',
        to: "const isOurs = [];",
      },
    ],
    // A single caller holds most of the time, under the same key as before, and so also when the late request arrives.
    hunt: t1(["hold-releases"], {
      ...{ seconds: 25, lastsMs: [3000, 5000], gapMs: [100, 200] },
      ...{ workers: 1, lanes: 1, names: 1, camp: 0 },
    }),
  },
  {
    name: "fence-not-checked",
    wrong: "gives a guard that everybody passes",
    patches: [
      {
        file: "fence.js",
        from: 'return [key, "Create", "==", revision.toString()];',
        to: 'return [key, "Create", "!=", "-1"];',
      },
    ],
    hunt: t1(["pause-holder"], { seconds: 40 }),
  },
  {
    name: "watch-trusted-on-created",
    wrong: "takes a watch for verified once it is created, without a read after it",
    patches: [
      {
        file: "lock/queue/predecessor-wait.js",
        from: "if (sinceJoin)\n            return this.#doubtWatches();",
        to: "return this.#trustWatches();",
      },
    ],
    hunt: t1(["link-reset"]),
  },
  {
    name: "own-end-ignored",
    wrong: "grants when the predecessor ends, although the same revision has ended the own key",
    patches: [
      {
        file: "lock/queue/predecessor-wait.js",
        from: "const own = events.find(({ kv }) => this.#isOwnEnd(kv));",
        to: "const own = events.every(({ kv }) => this.#isOwnEnd(kv)) ? events[0] : undefined;",
      },
      // Else the deletion that the watches have reported is known at the grant.
      KNOWS_NOTHING,
    ],
    hunt: t1(["purge"], { workers: 4, lanes: 2, names: 2 }),
  },
  {
    name: "read-outranks-deletion",
    wrong:
      "lets a read that is under way decide, although a watch has reported meanwhile that the own key is gone",
    patches: [
      {
        file: "lock/queue/predecessor-wait.js",
        from: "return this.#end(() => this.outcome.keyGone(own.kv.modRevision));",
        to: "return this.#reading ? void (this.gone = true) : this.#end(() => this.outcome.keyGone());",
      },
      {
        file: "lock/queue/predecessor-wait.js",
        from: "            this.#predecessorEnded(ended);\n    }",
        to: "            return this.gone ? this.#end(() => this.outcome.keyGone()) : this.#predecessorEnded(ended);\n    }",
      },
      {
        file: "lock/queue/predecessor-wait.js",
        from: "this.#decide(answer, read);",
        to: "this.#decide(answer, read);\n            if (this.gone)\n                this.#end(() => this.outcome.keyGone());",
      },
      KNOWS_NOTHING,
    ],
    // In the lab, nobody knows what a client was shown.
  },
  {
    name: "held-a-turn-later",
    wrong: "begins a hold a turn of the event loop after its grant",
    patches: [
      {
        file: "lock/hold/hold.js",
        from: "queue.lease.holds.add(this);",
        to: "queue.lease.holds.add(this);\n        this.early = true;\n        queue.lease.services.clock.afterPendingEvents(() => (this.early = false));",
      },
      {
        file: "lock/hold/hold.js",
        from: 'return standing === "held" &&',
        to: 'return standing === "held" && !this.early &&',
      },
    ],
    hunt: t1(["link-reset"]),
  },
  {
    name: "signal-late",
    wrong: "aborts the signal of a lost hold two turns of the event loop after `held` is false",
    patches: [
      {
        file: "lock/hold/hold.js",
        from: "tellOutside(() => controller.abort(this.#reason));",
        to: "tellOutside(() => {\n                const { clock } = this.#queue.lease.services;\n                const end = this.#reason;\n                if (end instanceof LockLostError)\n                    clock.afterPendingEvents(() => clock.afterPendingEvents(() => controller.abort(end)));\n                else\n                    controller.abort(this.#reason);\n            });",
      },
    ],
    hunt: t1(["pause-holder"], { camp: 0.7 }),
  },
  {
    name: "read-before-watch",
    wrong: "takes the answer to the join for the read that must come after the watches",
    patches: [
      {
        file: "lock/queue/predecessor-wait.js",
        from: "this.#follow(from.predecessor, {",
        to: "this.#asked = true;\n        this.#follow(from.predecessor, {",
      },
      {
        file: "lock/queue/predecessor-wait.js",
        from: "    #reading;",
        to: "    #reading;\n    #asked = false;",
      },
      {
        file: "lock/queue/predecessor-wait.js",
        from: "if (sinceJoin)\n",
        to: "if (this.#asked)\n            return this.#trustWatches();\n        if (sinceJoin)\n",
      },
    ],
    hunt: t1(["reorder"]),
  },
  {
    name: "stale-answer-accepted",
    wrong: "accepts a serializable answer that is older than the watch and the own place",
    patches: [
      {
        file: "lock/queue/predecessor-wait.js",
        from: "if (near && near.header.revision >= atLeast)",
        to: "if (near)",
      },
    ],
    hunt: t2(["isolate-follower", "isolate-leader"], { ttlSeconds: 3, seconds: 45, gapMs: [100, 300] }),
  },
  {
    name: "cleanup-not-retried",
    wrong: "sends the deletion of a place once",
    patches: [
      {
        file: "lock/queue/queue.js",
        from: "onUnanswered, untilConfirmed: true, ...this",
        to: "onUnanswered, again: () => false, ...this",
      },
      NO_SWEEP,
    ],
    hunt: t1(["lose-releases", "drop-requests"], { ttlSeconds: 9 }),
  },
  {
    name: "delay-forgotten",
    wrong: "grants the delay lease without the delay: it ends soon after the session's own",
    patches: [
      {
        file: "lock/session/delay-lease.js",
        from: "Math.ceil(ttlSeconds + releaseDelayMs / 1000) + LATE_SECONDS",
        to: "ttlSeconds + LATE_SECONDS",
      },
    ],
    hunt: t1(["kill-holder"], { releaseDelayMs: 3000, camp: 1 }),
  },
  {
    name: "delay-key-left-behind",
    wrong: "deletes the key of a released place, and not its delay key",
    patches: [
      {
        file: "lock/queue/txns.js",
        from: "success: [...success, ...said, ...reads]",
        to: 'success: [{ kind: "delete", key }, ...said, ...reads]',
      },
      NO_SWEEP,
    ],
    hunt: t1(["delete-key"], { releaseDelayMs: 3000 }),
  },
  {
    name: "delay-key-taken-for-its-entry",
    wrong: "tells entries apart by their create revision alone, which an entry and its delay key share",
    patches: [
      {
        file: "lock/queue/lock-mode.js",
        from: "a !== undefined && a.revision === b.revision && keyText(a.target.key) === keyText(b.target.key)",
        to: "a !== undefined && a.revision === b.revision",
      },
    ],
  },
  {
    name: "handle-before-probe",
    wrong: "uses a lease before the probe for `etcd grpc-proxy` that was sent beside its grant is answered",
    patches: [
      {
        file: "lock/session/open-lease.js",
        from: "const [probed] = await Promise.allSettled([probe, granting]);",
        to: "probe.catch(() => undefined);\n        const [probed] = await Promise.allSettled([granting]);",
      },
    ],
  },
  {
    name: "join-in-doubt-left-behind",
    wrong: "leaves the key of a join that was given up before it was answered",
    patches: [
      {
        file: "lock/queue/join.js",
        from: "if (entry.inDoubt)\n            this.#queueOf(entry).leaveInBackground(entry, beside?.leaveBy);\n        else\n",
        to: "",
      },
      NO_SWEEP,
    ],
    hunt: t1(["lose-join-answers"], { ttlSeconds: 9 }),
  },
  {
    name: "header-revision",
    wrong: "takes the header's revision for the own one when an earlier attempt had got through",
    patches: [
      {
        file: "lock/queue/join.js",
        from: "answer.header.revision : executedAt(entries, answer);",
        to: "answer.header.revision : executedAt(entries, answer) && answer.header.revision;",
      },
      NO_SWEEP,
    ],
    hunt: t1(["lose-join-answers"], { ttlSeconds: 9 }),
  },
  {
    name: "waiters-not-told",
    wrong: "does not tell waiters that their session is lost",
    patches: [
      {
        file: "lock/session/lease.js",
        from: "            hold.sessionEnded(reason);\n        this.endWaits(reason);",
        to: "            hold.sessionEnded(reason);",
      },
    ],
    hunt: t1(["revoke-lease"]),
  },
  {
    name: "local-wake-up-without-read",
    wrong: "gives the lock to a local waiter when the local place before it ends in any way",
    patches: [{ file: "lock/queue/queue.js", from: "if (isFirst?.(next))", to: "if (next)" }],
    hunt: t1(["link-reset"]),
  },
  {
    name: "no-own-key-watch",
    wrong: "does not watch the key that it holds",
    patches: [
      {
        file: "lock/hold/key-watch.js",
        from: "        this.#holds.add(this, atOnce);\n",
        to: "",
      },
    ],
    hunt: t1(["delete-key"], { ttlSeconds: 9, camp: 0.5 }),
  },
  {
    name: "old-term-accepted",
    wrong: "counts renewals that a deposed leader has answered",
    patches: [
      {
        file: "etcd/keepalive.js",
        from: "if (header.raftTerm < this.client.floor.term)",
        to: "if (header.raftTerm < 0n)",
      },
    ],
    hunt: t1(["stray-leader"], { seconds: 30, camp: 0.5 }),
  },
  {
    name: "one-connection-for-all",
    wrong: "takes the same connection again when it goes to the next member behind one address",
    patches: [
      {
        file: "etcd/http2/member.js",
        from: "this.#connection = new Connection(",
        // The clock is what all members of a cluster share.
        to: "this.#connection = this.deadlines.clock.connection ??= new Connection(",
      },
    ],
    // Shorter than pings need to detect the dead connection.
    hunt: t2(["pause-follower"], { oneAddress: true, ttlSeconds: 5, seconds: 45, gapMs: [100, 300] }),
  },
  {
    name: "no-sweep",
    wrong: "does not look for a put that arrives after its place was given back",
    patches: [NO_SWEEP],
    hunt: t1(["hold-joins"], { ttlSeconds: 9 }),
  },
  {
    name: "delete-overtakes-join",
    wrong: "deletes the place of a caller that has left while its join is still on the way",
    patches: [
      {
        file: "lock/queue/join.js",
        from: "answer = await lease.services.client.txn(txn, policy);",
        to: "const again = wanted.limits.again ?? (() => true);\n                const leave = () => entries.forEach((entry) => this.#queueOf(entry).leaveInBackground(entry));\n                if (!again())\n                    leave();\n                else\n                    lease.services.clock.after(4, () => again() || leave());\n                answer = await lease.services.client.txn(txn, policy);",
      },
      {
        file: "lock/queue/queue.js",
        from: "return this.leaveInBackground(entry);",
        to: "return;",
      },
      NO_SWEEP,
    ],
    hunt: t1(["reorder"], { ttlSeconds: 9 }),
  },
  {
    name: "try-without-range",
    wrong: "lets tryLock look at its own key only",
    patches: [
      {
        file: "lock/queue/txns.js",
        from: "    compare: entries.flatMap(when),\n",
        to: "",
      },
    ],
    hunt: t1(["link-reset"]),
  },
  {
    name: "retry-taken-for-loss",
    wrong: "takes a repeated release that finds nothing for a loss",
    patches: [
      {
        file: "lock/queue/queue.js",
        from: "return answer.succeeded || (doubted && !by);",
        to: "return answer.succeeded;",
      },
    ],
    hunt: t1(["lose-release-answers"], { ttlSeconds: 9 }),
  },
  {
    name: "own-key-taken-for-anothers",
    wrong:
      "takes its own key for another process's when no attempt went unanswered: a proxy has sent the join twice",
    patches: [
      {
        file: "lock/queue/join.js",
        from: "return kv !== undefined && isOurs(entry, kv)",
        to: "return entry.inDoubt && kv !== undefined && isOurs(entry, kv)",
      },
      NO_SWEEP,
    ],
    hunt: t1(["repeat-joins"], { ttlSeconds: 9 }),
  },
  {
    name: "one-name-in-one-batch",
    wrong: "lets transactions of the same queue share a request",
    patches: [
      {
        file: "etcd/batch.js",
        from: 'this.line = txn.queues.join("\\n");',
        to: "this.line = Symbol();",
      },
      {
        file: "etcd/batch.js",
        from: "if (apart || taken.conflict(queues) || passedOver.conflict(queues)) {",
        to: "if (apart) {",
      },
    ],
    hunt: t1(["reorder"], CROWD),
  },
  {
    name: "nested-names-in-one-batch",
    wrong: "lets transactions of a queue and of one under it share a request",
    patches: [
      {
        file: "etcd/batch.js",
        from: "if (own.has(name) || above.has(name))",
        to: "if (own.has(name) || (name && !above))",
      },
      {
        file: "etcd/batch.js",
        from: "if (own.has(name.slice(0, end)))",
        to: "if (!own)",
      },
    ],
    // Slow answers: more transactions leave in each request.
    hunt: t1(["reorder", "link-delay"], { ...CROWD, lanes: 24, seconds: 30, runs: 5 }),
  },
  {
    name: "answers-mixed-up",
    wrong: "gives each transaction of a batch the answer to the next one",
    patches: [
      {
        file: "etcd/batch.js",
        from: "const answer = answers[i];",
        to: "const answer = answers[(i + 1) % answers.length];",
      },
    ],
    hunt: t1(["reorder"], CROWD),
  },
  {
    name: "revision-for-each",
    wrong: "believes that each transaction of a batch has a revision of its own",
    patches: [
      {
        file: "etcd/http2/codec-read.js",
        from: "answers.push(readNestedTxn(reader, header));",
        to: "answers.push(readNestedTxn(reader, { ...header, revision: header.revision + BigInt(answers.length) }));",
      },
    ],
    hunt: t1(["reorder"], CROWD),
  },
  {
    name: "unanswered-batch-not-sent",
    wrong: "takes a batch without an answer for one that was refused: nothing of it is in doubt",
    patches: [
      {
        file: "etcd/batch.js",
        from: "if (batch.length > 1 && refused(error)) {",
        to: "if (batch.length > 1) {\n                this.#oneByOne(request.remaining(), false);\n            } else if (false) {",
      },
      // Without this, the session would attribute to a proxy what it has sent twice itself.
      {
        file: "lock/queue/entry.js",
        from: "this.lease.services.path.requestsAreRepeated = true;",
        to: "void 0;",
      },
    ],
    // The list of the session's keys finds what a late batch puts. Only a repeated release that finds nothing remains.
    hunt: t1(["lose-release-answers"], { ...CROWD, ttlSeconds: 9 }),
  },
];

export const MUTANTS: readonly Mutant[] = [
  ...MUTEX,
  ...OTHERS,
  ...REFUSALS,
  ...TRANSPORT,
  ...SHARDS,
  ...RESULTS,
  ...RENDEZVOUS,
];
