// The modes of permits as a protocol: random joins, ends and reads, against an etcd that is a list. What holds is compared with the rule, and
// a waiter must be woken by the one event that it waits for.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { KeyValue, Range } from "../../../../src/etcd/port.js";
import { type JoinedEntry, QueueEntry } from "../../../../src/lock/queue/entry.js";
import type { LockMode, Predecessor, RangeResult } from "../../../../src/lock/queue/lock-mode.js";
import { permit, weighted } from "../../../../src/lock/queue/permit-mode.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const RUNS = { numRuns: Number(process.env["LEASEHOLD_FUZZ"] ?? 300) };
const lease = new FakeCluster().lease();

interface Client {
  readonly entry: JoinedEntry;
  readonly weight: number;
  readonly permits: number;
  state: "waits" | "reads" | "holds";
  /** The number that ruled when it was granted. */
  ruled?: number;
  behind?: Predecessor;
}

/** The queue of one name, and its clients. Each has a session of its own; a read is answered when a step says so. */
class World {
  readonly clients: Client[] = [];
  #revision = 10n;
  #kvs: KeyValue[] = [];
  #n = 0;

  join(mode: LockMode): void {
    const revision = ++this.#revision;
    const entry = new QueueEntry({ lease, name: "jobs", n: ++this.#n, mode }).confirmed(revision);
    const { key, value } = entry;
    this.#kvs.push(keyValue({ key, value, createRevision: revision, modRevision: revision }));
    const { permits = 1, weight = 1 } = mode;
    const client: Client = { entry, weight, permits, state: "reads" };
    this.clients.push(client);
    const result = mode.joined(
      entry,
      mode.readsToJoin(entry).map((range) => this.#answer(range)),
    );
    if (result.state === "granted") this.#grant(client, result.visible);
    else if (result.state === "waiting") this.#follow(client, result.predecessor);
  }

  /** A release, an abort, the end of a lease or a deletion. */
  end(n: number): void {
    const [client] = this.clients.splice(n % this.clients.length, 1);
    if (!client) return;
    const kv = this.#kvs.find((each) => client.entry.is(each))!;
    this.#kvs = this.#kvs.filter((each) => each !== kv);
    this.#event("DELETE", { ...kv, createRevision: 0n, modRevision: ++this.#revision });
  }

  /** The answer to the read of one client. */
  read(n: number): void {
    const reading = this.clients.filter(({ state }) => state === "reads");
    const client = reading[n % reading.length];
    if (!client) return;
    const { entry } = client;
    const at = (all: boolean) =>
      entry.mode.positionOf(
        entry,
        entry.mode.reads(entry, all).map((range) => this.#answer(range)),
      );
    const position = at(false) === "unclear" ? at(true) : at(false);
    if (position === "first") return this.#grant(client, false);
    if (typeof position === "string") throw new Error(position);
    this.#follow(client, position.predecessor);
  }

  /** All answers arrive: then those that may hold do, the oldest at least. */
  settle(): void {
    while (this.clients.some(({ state }) => state === "reads")) this.read(0);
    for (const client of this.clients)
      expect([client.state, this.holdsByRule(client)]).not.toEqual(["waits", true]);
    expect(this.clients[0]?.state).not.toBe("waits");
  }

  /** All that hold take no more than the number that ruled when the newest of them was granted. */
  check(): void {
    const holders = this.clients.filter(({ state }) => state === "holds");
    const held = holders.reduce((sum, { weight }) => sum + weight, 0);
    expect(held).toBeLessThanOrEqual(holders.at(-1)?.ruled ?? 0);
  }

  /** By the rule, and nothing else. */
  holdsByRule(client: Client): boolean {
    const upTo = this.clients.slice(0, this.clients.indexOf(client) + 1);
    return upTo.reduce((sum, { weight }) => sum + weight, 0) <= this.clients[0]!.permits || upTo.length === 1;
  }

  #grant(client: Client, visible: boolean): void {
    expect(this.holdsByRule(client)).toBe(true);
    const before = this.clients.slice(0, this.clients.indexOf(client));
    expect(before.every((each) => this.holdsByRule(each))).toBe(true);
    client.state = "holds";
    client.ruled = this.clients[0]!.permits;
    this.check();
    if (visible) return;
    const n = this.#kvs.findIndex((each) => client.entry.is(each));
    this.#kvs[n] = { ...this.#kvs[n]!, modRevision: ++this.#revision };
    this.#event("PUT", this.#kvs[n]);
  }

  /** Its watch begins at once, and nothing but what that reports makes it read again. */
  #follow(client: Client, predecessor: Predecessor): void {
    client.behind = predecessor;
    client.state = "waits";
  }

  #event(kind: "PUT" | "DELETE", kv: KeyValue): void {
    for (const client of this.clients) {
      const { behind } = client;
      if (client.state !== "waits" || !behind) continue;
      const { target } = behind;
      const inRange = target.end === undefined ? kv.key.toString() === target.key : true;
      if (!inRange || (kind === "PUT" && target.events === "DELETE") || !behind.endedBy(kv)) continue;
      const next = kind === "PUT" ? behind.afterPut : undefined;
      if (next) this.#follow(client, next);
      // The end of a holder that is known as such is the turn of the next one, without a read.
      if (behind.holder && kind === "DELETE") this.#grant(client, false);
      else client.state = "reads";
    }
  }

  #answer({ limit = Infinity, order, maxCreateRevision = this.#revision }: Range): RangeResult {
    const found = this.#kvs.filter(({ createRevision }) => createRevision <= maxCreateRevision);
    if (order === "newest first") found.reverse();
    return { kvs: found.slice(0, limit), more: found.length > limit, count: this.#kvs.length };
  }
}

/** `weight` undefined: a plain permit. */
type Wanted = readonly [permits: number, weight?: number];
const EVEN: readonly Wanted[] = [[1], [2], [3], [5]];
const WEIGHTED = [1, 3, 4, 8].flatMap((permits) =>
  [1, 2, 3, 8].filter((weight) => weight <= permits).map((weight): Wanted => [permits, weight]),
);
const modeOf = ([permits, weight]: Wanted): LockMode =>
  weight === undefined ? permit(permits) : weighted(permits, weight);

const stepOf = (wanted: readonly Wanted[]) =>
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ joins: fc.constantFrom(...wanted) }) },
    { weight: 3, arbitrary: fc.record({ ends: fc.nat(50) }) },
    { weight: 3, arbitrary: fc.record({ reads: fc.nat(50) }) },
    // All answers arrive.
    { weight: 2, arbitrary: fc.constant({ settles: true }) },
  );

test.each([
  ["permits", EVEN],
  ["weighted permits", WEIGHTED],
  ["weighted permits of one number", WEIGHTED.filter(([permits]) => permits === 8)],
])("%s: who holds may, in order, and nobody waits who may hold", (_, wanted) => {
  fc.assert(
    fc.property(fc.array(stepOf(wanted), { minLength: 20, maxLength: 60 }), (steps) => {
      const world = new World();
      for (const step of steps) {
        if ("joins" in step) world.join(modeOf(step.joins));
        else if ("ends" in step) world.end(step.ends);
        else if ("reads" in step) world.read(step.reads);
        else world.settle();
        world.check();
      }
      world.settle();
      // Each of them gets its turn.
      while (world.clients.length > 0) {
        world.end(0);
        world.settle();
      }
    }),
    RUNS,
  );
});
