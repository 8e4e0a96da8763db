import type { ScenarioName } from "./scenarios.js";
import type { Invariant } from "./world.js";

/** A rule of the protocol that can be switched off to show what it prevents. */
interface Rule {
  readonly says: string;
  readonly without: string;
  /** The file under src/ that implements it. */
  readonly where: string;
  /** Explored without the rule, this scenario breaks that promise. */
  readonly scenario: ScenarioName;
  readonly breaks: Invariant;
}

const RULE_TABLE = {
  "watch-before-read": {
    says: "a waiter reads who is before it when its watches are there",
    without: "it reads first, then watches from now on",
    where: "lock/queue/predecessor-wait.ts",
    scenario: "turns",
    breaks: "no lost wake-up",
  },
  "old-answers-do-not-count": {
    says: "an answer older than the watches, the own place or the event before it is asked for again",
    without: "any answer counts",
    where: "lock/queue/predecessor-wait.ts",
    scenario: "moved streams",
    breaks: "true losses",
  },
  "known-holder": {
    says: "a deletion alone gives the lock only to the waiter behind the known holder",
    without: "every deletion of the predecessor gives the lock",
    where: "lock/queue/predecessor-wait.ts",
    scenario: "siblings",
    breaks: "single holder",
  },
  "own-end-in-one-watch": {
    says: "the deletion that may give the lock, and that of the own key, are followed by one watch",
    without: "each is followed by a watch of its own",
    where: "lock/queue/turn-watches.ts",
    scenario: "purges",
    breaks: "single holder",
  },
  "older-events-are-ignored": {
    says: "a deletion from before a place was created says nothing about it",
    without: "every deletion of the key counts",
    where: "lock/queue/predecessor-wait.ts",
    scenario: "a moved holder",
    breaks: "true losses",
  },
  "moved-watches-start-again": {
    says: "when the watch stream moves, every wait starts again with watches and a read",
    without: "watches go on from now on the other member",
    where: "lock/queue/predecessor-wait.ts",
    scenario: "moved streams",
    breaks: "no lost wake-up",
  },
  "own-key-is-watched": {
    says: "a waiter whose turn is near, and a holder, watch their own key",
    without: "a waiter watches its predecessor only, and a holder nothing",
    where: "lock/hold/hold.ts",
    scenario: "deletions",
    breaks: "true losses",
  },
  "read-includes-own-key": {
    says: "a read in which the own key is missing means that the place is gone",
    without: "only those before it are looked at",
    where: "lock/queue/entry.ts",
    scenario: "deletions",
    breaks: "single holder",
  },
  "holders-watch-is-verified": {
    says: "a holder that begins to watch its key reads it after that",
    without: "the watch alone is trusted",
    where: "lock/hold/hold.ts",
    scenario: "deletions",
    breaks: "true losses",
  },
  "own-create-revision": {
    says: "a join found done by an earlier attempt takes the create revision of the key",
    without: "it takes the revision in the answer's header",
    where: "lock/queue/join.ts",
    scenario: "aborts",
    breaks: "no ghost",
  },
  "own-value-decides": {
    says: "a key that is there already is ours only with the value that we put",
    without: "the key's name is enough",
    where: "lock/queue/join.ts",
    scenario: "one lease twice",
    breaks: "single holder",
  },
  "join-is-waited-for": {
    says: "a join that was sent is waited for before its place is deleted",
    without: "the delete is sent while the join is under way",
    where: "lock/queue/queue.ts",
    scenario: "aborts",
    breaks: "no ghost",
  },
  "local-order-is-etcds": {
    says: "a session joins one place at a time, and orders its places by revision",
    without: "it joins several at once, and orders them by call",
    where: "lock/queue/queue.ts",
    scenario: "siblings, lost answers",
    breaks: "no lost wake-up",
  },
  "late-keys-are-swept": {
    says: "a session looks for keys of its lease that are no place, and deletes them, until the lease is over",
    without: "nobody looks for them",
    where: "lock/session/key-audit.ts",
    scenario: "late requests",
    breaks: "no ghost",
  },
  "answered-puts-are-swept-for": {
    says: "it does so also when each of its puts was answered",
    without: "it does so while an unanswered put is in doubt",
    where: "lock/session/key-audit.ts",
    scenario: "repeats",
    breaks: "no ghost",
  },
  "guarded-release": {
    says: "a delete names the create revision of its place",
    without: "it deletes whatever has the key",
    where: "lock/queue/entry.ts",
    scenario: "late requests",
    breaks: "single holder",
  },
  "repeated-release-is-no-loss": {
    says: "a release that finds nothing is no loss: the same request may have deleted the key before",
    without: "it is taken for a loss unless an attempt went unanswered",
    where: "lock/hold/hold.ts",
    scenario: "repeats",
    breaks: "true losses",
  },
  "cleanup-is-repeated": {
    says: "the delete of a place that nobody wants is repeated until it is confirmed",
    without: "it is sent once",
    where: "lock/queue/queue.ts",
    scenario: "late requests, aborts",
    breaks: "no ghost",
  },
  "local-successor-looks": {
    says: "a place woken by one of its own session holds only if etcd named it as the first",
    without: "the end of the place before it is enough",
    where: "lock/queue/queue.ts",
    scenario: "siblings",
    breaks: "single holder",
  },
  "every-end-wakes": {
    says: "every end of a place wakes the place of its session behind it",
    without: "only a release that names the first does",
    where: "lock/queue/queue.ts",
    scenario: "siblings, deletions",
    breaks: "no lost wake-up",
  },
  "conflicting-share-no-batch": {
    says: "transactions share a request only if their names neither are equal nor nest",
    without: "any two share one",
    where: "etcd/batch.ts",
    scenario: "batches",
    breaks: "single holder",
  },
  "unanswered-batch-is-in-doubt": {
    says: "every transaction of a batch without an answer counts as unanswered",
    without: "they are sent again as if they had not been sent",
    where: "etcd/batch.ts",
    scenario: "batches, late requests",
    breaks: "no ghost",
  },
  "fence-is-checked": {
    says: "what is written to admits no lower fence than it has seen",
    without: "it admits every write",
    where: "fence.ts",
    scenario: "pauses",
    breaks: "fencing",
  },
  "deadline-before-expiry": {
    says: "a client's deadline counts from the sending of a renewal, so it gives up before etcd does",
    without: "etcd may end the lease first",
    where: "lock/session/lease.ts",
    scenario: "losses",
    breaks: "single holder",
  },
  "waiters-hear-of-the-session": {
    says: "the end of a session ends its waits",
    without: "they wait on",
    where: "lock/session/lease.ts",
    scenario: "losses",
    breaks: "no lost wake-up",
  },
  "delay-outlives-lease": {
    says: "the delay keys of a holder that has crashed stay for the delay",
    without: "they end with its lease",
    where: "lock/session/delay-lease.ts",
    scenario: "delays, losses",
    breaks: "delay",
  },
  "delay-key-with-every-join": {
    says: "the transaction of a join puts the delay key, too, with the same create revision",
    without: "it puts none",
    where: "lock/queue/txns.ts",
    scenario: "delays, losses",
    breaks: "delay",
  },
  "twins-are-two": {
    says: "of two keys with one create revision, each is waited for: a key is known by both",
    without: "the create revision is enough",
    where: "lock/queue/lock-mode.ts",
    scenario: "delays, losses, otherwise",
    breaks: "single holder",
  },
  "own-delay-key-is-nobody": {
    says: "a place does not wait for its own delay key",
    without: "it does, as for any other",
    where: "lock/queue/lock-mode.ts",
    scenario: "delays, turns",
    breaks: "no lost wake-up",
  },
  "delay-key-leaves-too": {
    says: "whoever deletes a place deletes its delay key in the same transaction",
    without: "it is left to the end of its lease",
    where: "lock/queue/txns.ts",
    scenario: "delays, turns",
    breaks: "no ghost",
  },
  "delay-key-of-a-lost-place": {
    says: "a session deletes the delay key of a place that others have deleted",
    without: "it is left to the end of its lease",
    where: "lock/queue/queue.ts",
    scenario: "delays, deletions",
    breaks: "no ghost",
  },
  "taken-when-verified": {
    says: "a key that stays is taken again when a read after the watch on joins has shown it",
    without: "it is taken as soon as that watch was asked for",
    where: "lock/queue/tenure.ts",
    scenario: "sticky, deletions",
    breaks: "single holder",
  },
  "joins-watch-is-verified": {
    says: "a session that begins to watch for joins reads the queue after that",
    without: "the watch alone is trusted",
    where: "lock/queue/tenure.ts",
    scenario: "sticky, delays",
    breaks: "no lost wake-up",
  },
  "wanted-key-leaves": {
    says: "a key that is kept leaves when a join is heard of",
    without: "it stays until it is used again",
    where: "lock/queue/tenure.ts",
    scenario: "sticky",
    breaks: "no lost wake-up",
  },
  "wanted-ends-the-turns": {
    says: "a key is not taken again after a join was heard of",
    without: "its session takes it first",
    where: "lock/queue/tenure.ts",
    scenario: "sticky",
    breaks: "no overtaking",
  },
  "kept-key-leaves-with-the-stream": {
    says: "a key that is kept leaves when the watch stream moves, and one that is held leaves with its release",
    without: "the watch goes on from now on the other member",
    where: "lock/queue/tenure.ts",
    scenario: "sticky, moved streams",
    breaks: "no lost wake-up",
  },
  "own-end-of-kept-key": {
    says: "the deletion of a key that is kept ends it",
    without: "only that of a key that is held is looked at",
    where: "lock/queue/tenure.ts",
    scenario: "sticky, deletions",
    breaks: "single holder",
  },
  "turns-rise": {
    says: "each hold by the same key has a higher turn",
    without: "all have the same one",
    where: "lock/queue/tenure.ts",
    scenario: "sticky",
    breaks: "fencing",
  },
  "turn-is-checked": {
    says: "what is written to admits, of one fence, no lower turn than it has seen",
    without: "it compares the fences",
    where: "fence.ts",
    scenario: "sticky, impatient writes",
    breaks: "fencing",
  },
  "waiting-writer-is-a-barrier": {
    says: "a reader holds beside a writer that has become a reader only if no other writer is between them",
    without: "any reader behind such a writer holds",
    where: "lock/queue/lock-mode.ts",
    scenario: "downgrades, a writer behind",
    breaks: "single holder",
  },
  "downgraded-key-stays": {
    says: "a writer becomes a reader by a put of its key, which keeps its place in the queue",
    without: "it deletes its key, and puts one of a reader",
    where: "lock/queue/txns.ts",
    scenario: "downgrades, a writer behind",
    breaks: "single holder",
  },
  "guarded-downgrade": {
    says: "that put names the create revision of the place",
    without: "it puts the key in any case",
    where: "lock/queue/txns.ts",
    scenario: "downgrades, late requests",
    breaks: "no ghost",
  },
  "downgrades-are-watched": {
    says: "a reader behind a writer watches the puts of its key, too",
    without: "it watches for its end only",
    where: "lock/queue/turn-watches.ts",
    scenario: "downgrades",
    breaks: "no lost wake-up",
  },
  "downgrade-is-read": {
    says: "after such a put, a read shows whether the reader holds",
    without: "the put is enough",
    where: "lock/queue/predecessor-wait.ts",
    scenario: "downgrades, deletions",
    breaks: "single holder",
  },
  "own-readers-are-let-in": {
    says: "the readers of its session that wait for the writer read who is before them when it has become a reader",
    without: "they wait for its end",
    where: "lock/queue/queue.ts",
    scenario: "downgrades, siblings",
    breaks: "no lost wake-up",
  },
} satisfies Record<string, Rule>;

export type RuleName = keyof typeof RULE_TABLE;

export const RULES: Readonly<Record<RuleName, Rule>> = RULE_TABLE;

export const RULE_NAMES = Object.keys(RULES) as RuleName[];
