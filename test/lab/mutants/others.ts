// The rules of readers and writers, permits, several locks at once, and elections, broken on purpose.
import { t1, type Hunt, type Mutant } from "./mutant.js";

/** Many callers on few names, so that all combinations of neighbors meet in a queue. */
const readers = (faults: readonly string[], more: Partial<Hunt> = {}): Hunt =>
  t1(faults, { of: "rwlock", seconds: 15, names: 2, ...more });
const permits = (faults: readonly string[], more: Partial<Hunt> = {}): Hunt =>
  t1(faults, { of: "semaphore", seconds: 15, names: 2, ...more });
const several = (faults: readonly string[], more: Partial<Hunt> = {}): Hunt =>
  t1(faults, { of: "lockall", seconds: 15, ...more });
const leaders = (faults: readonly string[], more: Partial<Hunt> = {}): Hunt =>
  t1(faults, { of: "election", seconds: 15, names: 2, ...more });

export const OTHERS: readonly Mutant[] = [
  {
    name: "reader-ignores-writers",
    wrong: "lets a reader pass the writers that wait",
    patches: [
      {
        file: "lock/queue/lock-mode.js",
        from: "    const [first, ...rest] = last;\n    if (!first)",
        to: "    const [first, ...rest] = last;\n    if (!first || others === 1)",
      },
    ],
    hunt: readers(["link-reset"]),
  },
  {
    name: "reader-looks-on-one-side",
    wrong:
      "lets a reader look only at the keys that sort behind the readers': a mutex of the same name is not seen",
    patches: [
      {
        file: "lock/queue/lock-mode.js",
        from: "const last = results.map(({ kvs }) => kvs[0])",
        to: "const last = results.slice(1).map(({ kvs }) => kvs[0])",
      },
    ],
    hunt: readers(["link-reset"]),
  },
  {
    name: "writer-ignores-readers",
    wrong: "lets a writer wait for writers only",
    patches: [
      {
        file: "lock/queue/lock-mode.js",
        from: '    if (!below)\n        return "first";',
        to: '    if (!below || below.key.includes("/read/"))\n        return "first";',
      },
    ],
    hunt: readers(["link-reset"]),
  },
  {
    name: "reader-before-the-downgrade",
    wrong: "lets a reader hold beside a writer that has not become a reader",
    patches: [
      {
        file: "lock/queue/lock-mode.js",
        from: "isWriters(path, key.toString()) && parseEntryValue(value).downgraded === true",
        to: "isWriters(path, key.toString()) && parseEntryValue(value).id !== undefined",
      },
    ],
    hunt: readers(["link-reset"]),
  },
  {
    name: "reader-passes-behind-a-downgrade",
    wrong: "lets a reader behind a writer that has become a reader pass the writers between them",
    patches: [
      {
        file: "lock/queue/lock-mode.js",
        from: "        ...nearest(entry).map((range) => ({ ...range, maxCreateRevision: entry.revision - 1n })),",
        to: '        ...nearest(entry).map((range) => ({ ...range, order: "oldest first", maxCreateRevision: entry.revision - 1n })),',
      },
    ],
    hunt: readers(["link-reset"]),
  },
  {
    name: "downgrade-unwatched",
    wrong: "lets a reader watch only for the end of the writer before it, and not for its becoming a reader",
    patches: [
      {
        file: "lock/queue/turn-watches.js",
        from: "if (mayDowngrade)",
        to: "if (mayDowngrade && false)",
      },
    ],
    // In the lab, hardly any reader waits long enough behind a writer that reads.
  },
  {
    name: "downgrade-by-a-new-key",
    wrong: "makes a writer a reader by the deletion of its key and the put of another one",
    patches: [
      {
        file: "lock/queue/queue.js",
        from: "        let answer = await send(false);",
        to: `        await lease.services.client.txn(leaveTxn(entry, []), policy);
        await lease.services.client.txn({ queues: [entry.path], compare: [], failure: [], success: [
                { kind: "put", key: entry.key, value: entry.downgradedValue, leaseId: lease.leaseId }] }, policy);
        entry.downgrades();
        return true;
        let answer = await send(false);`,
      },
    ],
    hunt: readers(["link-reset"]),
  },
  {
    name: "one-permit-too-many",
    wrong: "grants a permit to one place more than there are permits",
    patches: [
      {
        file: "lock/queue/permit-mode.js",
        from: "if (load <= permits || !last)",
        to: "if (before <= permits || !last)",
      },
    ],
    hunt: permits(["link-reset"]),
  },
  {
    name: "heavy-waiter-overtaken",
    wrong: "counts only those before it that hold: a light call overtakes a heavy one that waits",
    patches: [
      {
        file: "lock/queue/permit-mode.js",
        from: "if (load <= permits || !last)",
        to: "if (loadOf(by, below.filter((kv, n) => kv.modRevision !== kv.createRevision || loadOf(by, below.slice(n)) <= permits)) + by.weightOf(entry) <= permits || !last)",
      },
    ],
    hunt: permits(["link-reset"], { of: "weighted" }),
  },
  {
    name: "weight-written-as-one",
    wrong: "says in its key that it takes one permit, whatever its caller takes",
    patches: [
      {
        file: "lock/queue/entry.js",
        from: "{ weighted: { permits, weight } }",
        to: "{ weighted: { permits, weight: 1 } }",
      },
    ],
    hunt: permits(["link-reset"], { of: "weighted" }),
  },
  {
    name: "own-number-rules",
    wrong: "goes by the own number of permits, not by that of the oldest place",
    patches: [
      {
        file: "lock/queue/permit-mode.js",
        from: "const permits = rulingNumber(by, first);",
        to: "const permits = entry.mode.permits;",
      },
    ],
    hunt: permits(["link-reset"]),
  },
  {
    name: "turn-not-told",
    wrong: "does not put its key when its turn comes: who waits behind it does not become the first waiter",
    patches: [
      { file: "lock/queue/permit-mode.js", from: "announcesGrant: true,", to: "announcesGrant: false," },
    ],
    // One holder stays while another permit becomes free: without the put, no waiter would look.
    hunt: permits(["delay-reads"], { camp: 0.4, gapMs: [4000, 5000] }),
  },
  {
    name: "held-with-the-first",
    wrong: "holds all names when it holds the first of them",
    patches: [
      {
        file: "lock/lock-all.js",
        from: "if (this.#waiting.size > 0)",
        to: "if (this.#waiting.size < 0)",
      },
    ],
    hunt: several(["link-reset"]),
  },
  {
    name: "granted-without-last-read",
    wrong: "holds several names when the last turn has come, without a read of all keys after that",
    patches: [
      {
        file: "lock/lock-all.js",
        from: "void this.#confirm().catch((error) => this.#fail(error));",
        to: "this.#grant();",
      },
    ],
  },
  {
    name: "joined-one-by-one",
    wrong: "joins the queues of several names one after the other",
    patches: [
      {
        file: "lock/queue/join.js",
        from: "answer = await lease.services.client.txn(txn, policy);",
        to: 'for (const entry of step === "join" ? entries.slice(1) : [])\n                    await lease.services.client.txn(this.#txn([entry], step), policy);\n                answer = await lease.services.client.txn(step === "join" ? this.#txn(entries.slice(0, 1), step) : txn, policy);',
      },
    ],
    hunt: several(["reorder"]),
  },
  {
    name: "rest-not-given-back",
    wrong: "keeps the other names when one of several is lost",
    patches: [
      {
        file: "lock/lock-all.js",
        from: "const release = () => this.#holds.forEach((hold) => void hold.release());",
        to: "const release = () => { };",
      },
    ],
    // Few callers wait, so that the deleted key is mostly a holder's.
    hunt: several(["delete-key"], { camp: 0.7, workers: 3, lanes: 1, names: 9, gapMs: [100, 300] }),
  },
  {
    name: "proclaimed-unguarded",
    wrong: "proclaims without comparing the revisions of its key",
    patches: [
      {
        file: "recipes/election/leadership.js",
        from: '                { kind: "created at", key, revision },\n                { kind: "modified at", key, revision: this.#modified },\n',
        to: "",
      },
    ],
    hunt: leaders(["hold-batches", "hold-joins", "link-delay", "delete-key"]),
  },
  {
    name: "vacancy-not-told",
    wrong: "does not tell observers that nobody leads",
    patches: [
      {
        file: "observe/queue-watch.js",
        from: "        if (last && this.source.same(last.item, item))\n",
        to: "        if (!item || (last && this.source.same(last.item, item)))\n",
      },
    ],
    hunt: leaders(["delete-key"]),
  },
  {
    name: "youngest-observed",
    wrong: "tells observers the candidate that came last as the leader",
    patches: [
      {
        file: "recipes/election/leader.js",
        from: "const [first, second] = keys.values();",
        to: "const [first, second] = [...keys.values()].reverse();",
      },
    ],
    hunt: leaders(["delete-key"]),
  },
  {
    name: "live-parent-revoked",
    wrong: "revokes the leases of a process that has not ended",
    patches: [
      {
        file: "alive/guardian-program.js",
        from: "void warmUp(order);",
        to: "setTimeout(() => { parent = undefined; void revokeAll(); }, order.ttlMs / 2);",
      },
    ],
    hunt: t1(["link-reset"], { guardian: true, camp: 1 }),
  },
  {
    name: "deadline-not-shared",
    wrong: "waits for a message of the thread that renews, though the deadline is in memory that both share",
    patches: [
      {
        file: "lock/session/lease.js",
        from: "if (this.#elsewhere && this.#elsewhere.last.sent.monotonic > this.#renewal.sent.monotonic)",
        to: "if (false)",
      },
    ],
    hunt: t1(["block-holder"], { maxStallMs: 120_000, camp: 1 }),
  },
  {
    name: "beat-ignored",
    wrong: "renews the leases of a process whose main thread stands still for ever",
    patches: [
      {
        file: "alive/lease-renewer.js",
        from: "const stalled = leftMs <= 0;",
        to: "const stalled = false;",
      },
    ],
    hunt: t1(["block-holder"], { maxStallMs: 1000, camp: 1, lastsMs: [6000, 8000] }),
  },
  {
    name: "gap-not-replayed",
    wrong:
      "reads the present state when an observer's watch breaks, though etcd still has what happened since",
    patches: [
      {
        file: "observe/queue-watch.js",
        from: 'if (reason === "compacted")',
        to: "if (reason)",
      },
    ],
    hunt: leaders(["link-reset"]),
  },
  {
    name: "wanted-after-the-end",
    wrong: "tells a former holder who waits",
    patches: [
      { file: "lock/hold/hold.js", from: "this.#asked?.ended(this);", to: "" },
      {
        file: "lock/queue/demand.js",
        from: "if (!hold.held || !this.#isBehind(waiter, hold))",
        to: "if (!this.#isBehind(waiter, hold))",
      },
    ],
    hunt: t1(["link-reset"], { wanted: true, camp: 0.5 }),
  },
  {
    name: "joins-lost-with-the-stream",
    wrong: "looks for waiters when its first watch is there, and not when that has moved",
    patches: [
      {
        file: "lock/queue/demand.js",
        from: "this.#forget(true);\n        void this.#look();",
        to: "this.#forget(true);\n        if (!this.looked)\n            void this.#look();\n        this.looked = true;",
      },
    ],
    hunt: t1(["link-reset"], { wanted: true, camp: 0.5 }),
  },
  {
    name: "old-join-believed",
    wrong: "takes every key that a lagging member reports for that of a waiter",
    patches: [
      { file: "lock/queue/demand.js", from: "if (kv.modRevision <= this.#seenAt)", to: "if (false)" },
      {
        file: "lock/queue/demand.js",
        from: "(entry.createRevision > revision || entry.priority !== undefined);",
        to: "true;",
      },
    ],
    // A lagging member is hardly ever so far behind in the lab.
  },
  {
    name: "kept-though-asked",
    wrong: "keeps the key of a sticky lock when another session asks for it",
    patches: [
      {
        file: "lock/queue/tenure.js",
        from: 'if (this.#state === "over")\n            return;\n        this.queue.contended();',
        to: "return;",
      },
    ],
    hunt: t1(["link-reset"], { sticky: true }),
  },
  {
    name: "turn-while-asked",
    wrong: "takes a sticky lock again when another session has asked while it was held",
    patches: [
      {
        file: "lock/queue/tenure.js",
        from: 'if (this.#state === "over")\n            return;\n        this.queue.contended();',
        to: "if (!this.kept)\n            return;\n        this.queue.contended();",
      },
    ],
    hunt: t1(["link-reset"], { sticky: true }),
  },
  {
    name: "kept-key-s-joins-lost",
    wrong: "keeps a key when the stream moves, and doesn't look who has joined meanwhile",
    patches: [
      {
        file: "lock/queue/demand.js",
        from: "if (moved)\n            this.#tenures((tenure) => tenure.unwatched());",
        to: "",
      },
      {
        file: "lock/queue/demand.js",
        from: "this.#forget(true);\n        void this.#look();",
        to: "this.#forget(true);\n        if (!this.looked)\n            void this.#look();\n        this.looked = true;",
      },
    ],
    hunt: t1(["link-reset"], { sticky: true }),
  },
  {
    name: "turn-repeated",
    wrong: "gives each hold by one key the same turn",
    patches: [{ file: "lock/queue/entry.js", from: "this.#turn++;", to: "" }],
    hunt: t1(["link-reset"], { sticky: true }),
  },
  {
    name: "guard-outlives-its-hold",
    wrong: "keeps the key of a hold that guards a write",
    patches: [{ file: "lock/hold/hold.js", from: "!this.#guards && ", to: "" }],
    hunt: t1(["link-lossy"], { sticky: true }),
  },
  {
    name: "full-queue-entered",
    wrong: "counts those that wait, and then joins whoever else has joined meanwhile",
    patches: [
      {
        file: "lock/queue/room.js",
        from: 'when = () => [{ kind: "nothing since", ...queueRange(path), revision }];',
        to: "when = () => [];",
      },
    ],
  },
  {
    name: "better-call-overtaken",
    wrong: "claims a lock with priorities whoever has come since it read the queue",
    patches: [
      {
        file: "lock/queue/priority-waiter.js",
        from: '{ kind: "nothing since", ...queueRange(path), revision },',
        to: "",
      },
    ],
  },
  {
    name: "priority-ignored",
    wrong: "serves calls with priorities in the order of their places",
    patches: [
      {
        file: "lock/queue/priority-mode.js",
        from: "if (a.rank !== b.rank)",
        to: "if (false)",
      },
    ],
  },
  {
    name: "fence-of-the-place",
    wrong: "gives the hold of a call with a priority the revision of its place, and not that of the claim",
    patches: [
      {
        file: "lock/queue/priority-waiter.js",
        from: "return joined?.entry;",
        to: 'return joined && place ? Object.defineProperty(joined.entry, "revision", { value: place.revision }) : joined?.entry;',
      },
    ],
  },
  {
    name: "key-gone-before-its-watch",
    wrong: "trusts the watch of the key before its place, which may have ended before that began",
    patches: [
      {
        file: "lock/queue/priority-waiter.js",
        from: "if (revision > this.seenAt)",
        to: "if (false)",
      },
    ],
  },
  {
    name: "transfer-to-a-dead-candidate",
    wrong: "hands over without comparing that the named candidate is still there",
    patches: [
      {
        file: "recipes/election/transfer.js",
        from: "...[target, ...moved].map(isThere)",
        to: "...moved.map(isThere)",
      },
    ],
  },
  {
    name: "holder-superseded",
    wrong: "deletes the entries that waited when it looked, although the holder may have left since",
    patches: [
      { file: "lock/queue/superseding.js", from: "if (guard && overtaken.length > 0)", to: "if (false)" },
    ],
  },
  {
    name: "older-call-left-waiting",
    wrong: "deletes those that waited when it looked, whoever has joined since",
    patches: [
      {
        file: "lock/queue/superseding.js",
        from: 'asShown = [{ kind: "nothing since", ...queueRange(path), revision }];',
        to: "asShown = [];",
      },
    ],
  },
  {
    name: "superseded-call-returns",
    wrong:
      "joins after an attempt without an answer, although a newer call may have overtaken that one, held and left",
    patches: [
      {
        file: "lock/queue/superseding.js",
        from: "return this.#inDoubt && this.#assertNoneSince(this.#inDoubt, queue, entry);",
        to: "return undefined;",
      },
    ],
  },
];
