// The rules of shards, broken on purpose.
import type { Mutant } from "./mutant.js";

export const SHARDS: readonly Mutant[] = [
  {
    name: "moved-before-the-next-stands",
    wrong: "gives up a shard as soon as another member should own it, before that one stands in the queue",
    patches: [
      {
        file: "recipes/shards/shards.js",
        from: "if (place !== -1 && next)\n            this.#move(own, this.view.memberOf(next.leaseId)?.member.id);",
        to: "if (to)\n            this.#move(own, to.id);",
      },
    ],
  },
  {
    name: "owned-by-the-view",
    wrong: "works on a shard without its lock when nobody stands in its queue, as far as the view shows",
    patches: [
      {
        file: "recipes/shards/own-shard.js",
        from: "this.#lock = await this.#acquire();",
        to: "this.#lock = this.host.free(this.id) ?? (await this.#acquire());",
      },
      {
        file: "recipes/shards/shards.js",
        from: "stuck: (id, forMs) => {",
        to: `free: (id) => this.view.queue(id).length > 0 ? undefined : {
                name: name + "/shard/" + id, key: name + "/shard/" + id + "/view", revision: this.view.revision,
                fence: this.view.revision, held: true, signal: new AbortController().signal, release: async () => {},
            },
            stuck: (id, forMs) => {`,
      },
    ],
  },
  {
    name: "drain-ignored",
    wrong: "releases the lock of a shard while its work still runs",
    patches: [
      {
        file: "recipes/shards/own-shard.js",
        from: "await this.host.inContext(async () => await this.host.work(shard));\n",
        to: "await Promise.race([aborted(signal), this.host.inContext(() => Promise.resolve(shard).then(this.host.work))]);\n",
      },
    ],
  },
  {
    name: "older-members-ruled-by",
    wrong: "computes who should own what by the members that were there at the last change of a queue",
    patches: [
      {
        file: "recipes/shards/view.js",
        from: "if (membersChanged || this.#isPlanOld(changed.keys()))",
        to: "if (this.#isPlanOld(changed.keys()))",
      },
    ],
  },
  {
    name: "work-begun-after-its-lock",
    wrong: "tries failed work again though the lock of its shard has ended while the process stood still",
    patches: [
      {
        file: "recipes/shards/own-shard.js",
        from: "!shard.signal.aborted",
        to: "!signal.aborted",
      },
    ],
  },
  {
    name: "entries-known-by-their-objects",
    wrong: "keeps an owner that has left in the view, if a read has shown it since it came",
    patches: [
      {
        file: "recipes/shards/view.js",
        from: "else\n                    queue.delete(key);",
        to: "else if (queue.get(key) === last?.entry)\n                    queue.delete(key);",
      },
    ],
  },
  {
    name: "let-go-unseen",
    wrong: "lets shards go as a member that leaves, though the group does not know it",
    patches: [
      {
        file: "recipes/shards/shards.js",
        from: 'this.view.memberOf(lease.leaseId)?.member.state === "draining"',
        to: 'this.#state === "draining"',
      },
    ],
  },
  {
    name: "moved-to-itself",
    wrong: "takes an entry of its own member, which a late join has left, for the next owner's",
    patches: [
      {
        file: "recipes/shards/shards.js",
        from: "n > place && leaseId !== lease.leaseId && ",
        to: "n > place && ",
      },
    ],
  },
];
