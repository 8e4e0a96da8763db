// The rules of latches and barriers, broken on purpose. The lab hunts the first of them, the simulation all.
import { t1, type Mutant } from "./mutant.js";

export const RENDEZVOUS: readonly Mutant[] = [
  {
    name: "counted-twice-after-a-lost-answer",
    wrong: "counts once more, under another ID, when etcd has not answered within a second",
    patches: [
      {
        file: "recipes/rendezvous/latch.js",
        from: 'await this.#ask("countDown", wait, (asking) => this.#latch.write(asking, undefined, (round) => ({\n            puts: [{ key: this.#latch.keys.of("counted", round, counted), value }],\n            counts: true,\n        })));',
        to: `const count = (id, within) => this.#ask("countDown", within, (asking) => this.#latch.write(asking, undefined, (round) => ({
            puts: [{ key: this.#latch.keys.of("counted", round, id), value }],
            counts: true,
        })));
        await count(counted, { ...wait, timeoutMs: 1000 }).catch((error) => {
            if (error.code !== "ETCD_UNAVAILABLE") throw error;
            return count(newId(this.#source.services), wait);
        });`,
      },
    ],
    hunt: t1(["drop-answers"], { of: "rendezvous", seconds: 15, names: 2 }),
  },
  {
    name: "latch-opened-with-one-missing",
    wrong: "opens a latch with the last count but one",
    patches: [
      {
        file: "recipes/rendezvous/latch-store.js",
        from: "(answer.ranges.at(-1)?.count ?? 0) >= this.total;",
        to: "(answer.ranges.at(-1)?.count ?? 0) >= this.total - 1;",
      },
    ],
  },
  {
    name: "counter-s-repeated-put",
    wrong:
      "takes the revision of a repeated attempt for that of the counter which an earlier one has enlisted",
    patches: [
      {
        file: "recipes/rendezvous/latch.js",
        from: 'unless: ["enlisted", "counted", "left"]',
        to: "unless: []",
      },
    ],
  },
  {
    name: "refused-counter-stays",
    wrong: "lets no counter leave whose enlisting was refused after an attempt that may have been executed",
    patches: [
      {
        file: "recipes/rendezvous/counter.js",
        from: "(revision === undefined && !inDoubt))",
        to: "revision === undefined)",
      },
    ],
  },
  {
    name: "dead-counter-waited-for",
    wrong: "waits for ever for an enlisted counter whose session has ended",
    patches: [
      {
        file: "recipes/rendezvous/latch-wait.js",
        from: "const dead = this.rejects ? (counts?.dead ?? []) : [];",
        to: "const dead = [];",
      },
    ],
  },
  {
    name: "barrier-closed-again",
    wrong: "lets an attempt to hold a barrier close it once more that etcd executes after its release",
    patches: [
      {
        file: "recipes/rendezvous/barrier.js",
        from: 'compare: [...keys, by].map((key) => ({ kind: "created at", key, revision: 0n })),',
        to: 'compare: keys.map((key) => ({ kind: "created at", key, revision: 0n })),',
      },
    ],
  },
  {
    name: "barrier-opened-with-one-missing",
    wrong: "opens a double barrier with the last member but one",
    patches: [
      {
        file: "recipes/rendezvous/member-round.js",
        from: "if (firsts.length === this.count && firsts",
        to: "if (firsts.length >= this.count - 1 && firsts",
      },
    ],
  },
  {
    name: "barrier-opened-for-the-dead",
    wrong: "opens a double barrier by what it has read, without the condition that all are still there",
    patches: [
      {
        file: "recipes/rendezvous/member-round.js",
        from: '...firsts.map((kv) => ({ kind: "created at", key: kv.key, revision: kv.createRevision })),',
        to: "",
      },
    ],
  },
  {
    name: "dead-member-waited-for",
    wrong: "puts a member without the lease of its session: the others wait for ever for it to leave",
    patches: [
      {
        file: "recipes/rendezvous/member-round.js",
        from: '{ kind: "put", key, value, leaseId },',
        to: '{ kind: "put", key, value, leaseId: long },',
      },
    ],
  },
  {
    name: "left-before-the-others",
    wrong: "lets a member leave that has deleted its own key, without a wait for the others",
    patches: [{ file: "recipes/rendezvous/member-round.js", from: "if (others > 0)", to: "if (others > 1)" }],
  },
  {
    name: "unmarked-member-stays",
    wrong: "lets no member leave whose mark etcd rejects",
    patches: [
      {
        file: "recipes/rendezvous/member-round.js",
        from: "catch {\n                signal.throwIfAborted();",
        to: "catch (error) {\n                throw error;",
      },
    ],
  },
  {
    name: "late-member-put",
    wrong: "lets etcd put a member late that has given up",
    patches: [
      {
        file: "recipes/rendezvous/member-round.js",
        from: 'compare: [key, record].map((each) => ({ kind: "created at", key: each, revision: 0n })),',
        to: 'compare: [{ kind: "created at", key, revision: 0n }],',
      },
    ],
  },
];
