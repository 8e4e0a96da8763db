// The simulated etcd of several members: what its requests wait for, and what it refuses.
import { describe, expect, it } from "vitest";
import type { LeaseAnswer, RangeAnswer } from "../../../../src/etcd/port.js";
import { Random } from "../../../../src/testing/memory/random.js";
import { type Asked, grantOf, putOf, rangeOf, several } from "./cluster-setup.js";

const SEEDS = [1, 2, 3, 4, 5, 6];

describe("several members", () => {
  it("all apply what one of them was asked to write", () => {
    const { ask, keysAt, etcd } = several({ size: 5 });
    for (const place of [0, 1, 2, 3, 4]) ask(place, putOf(`k${place}`));

    const all = ["k0", "k1", "k2", "k3", "k4"];
    expect([0, 1, 2, 3, 4].map(keysAt)).toEqual([all, all, all, all, all]);
    expect(etcd.store.keys.map(({ key }) => key.toString())).toEqual(all);
  });

  it("answer with their own IDs, and with one cluster ID and term", () => {
    const { ask } = several();
    const headers = [0, 1, 2].map((place) => ask<RangeAnswer>(place, rangeOf("k")).header);

    expect(new Set(headers.map(({ memberId }) => memberId)).size).toBe(3);
    expect(new Set(headers.map(({ clusterId }) => clusterId)).size).toBe(1);
    expect(headers.map(({ raftTerm }) => raftTerm)).toEqual([2n, 2n, 2n]);
  });

  it("serve with a majority, and not without", () => {
    const { ask, send, scheduler, etcd, followers, lead } = several({ size: 5 });
    const [a, b, c] = followers() as [number, number, number];
    etcd.kill(a);
    etcd.kill(b);
    ask(lead(), putOf("k"));
    const place = lead();
    etcd.kill(c);
    const refused = send(place, putOf("k"));

    scheduler.advance(6_999);
    expect(refused.said).toBe(undefined);
    scheduler.advance(1);
    expect(refused.said).toMatch(/^etcdserver: request timed out/);
  });
});

describe("the logs of the members", () => {
  it("keep what a dead member has not applied, and drop it when all have", () => {
    const { ask, etcd, cluster, lead, followers, keysAt, scheduler } = several();
    const [dead] = followers() as [number];
    const lengths = (): number[] => cluster.nodes.map(({ log }) => log.part.entries.length);
    const write = (count: number, key: string): void => {
      for (let n = 0; n < count; n++) ask(lead(), putOf(key), 10);
    };
    write(1_500, "before");
    etcd.kill(dead);
    write(1_500, "meanwhile");
    expect(lengths()[lead()]).toBeGreaterThan(1_500);

    etcd.restart(dead);
    scheduler.advance(2_000);
    expect(keysAt(dead)).toEqual(["before", "meanwhile"]);
    write(1_000, "after");
    expect(Math.max(...lengths())).toBeLessThan(1_500);
    expect([0, 1, 2].map(keysAt)).toEqual([0, 1, 2].map(() => ["after", "before", "meanwhile"]));
  });
});

describe("a member that is behind", () => {
  function withLag() {
    const setup = several();
    const [place] = setup.followers() as [number];
    setup.cluster.lag(place, 500);
    return { ...setup, place };
  }

  it("answers serializable reads from its own state, and linearizable ones when it has applied the rest", () => {
    const { ask, send, scheduler, lead, place } = withLag();
    ask(lead(), putOf("k"), 10);

    const linearizable = send(place, rangeOf("k"));
    expect(ask<RangeAnswer>(place, rangeOf("k", true), 0)).toMatchObject({
      kvs: [],
      header: { revision: 1n },
    });
    scheduler.advance(400);
    expect(linearizable.said).toBe(undefined);
    scheduler.advance(100);
    expect(linearizable.answer).toMatchObject({ count: 1, header: { revision: 2n } });
  });

  it("answers its own client only when it has applied the write", () => {
    const { send, scheduler, etcd, place } = withLag();
    const written = send(place, putOf("k"));

    scheduler.advance(100);
    expect(etcd.store.revision).toBe(2n);
    expect(written.said).toBe(undefined);
    scheduler.advance(500);
    expect(written.answer).toMatchObject([{ header: { revision: 2n } }]);
  });

  it("shows its watches what it has applied", () => {
    const { ask, scheduler, lead, watch, place } = withLag();
    const { received } = watch(place);
    scheduler.advance(10);
    ask(lead(), putOf("k"), 100);

    expect(received).toHaveLength(1);
    scheduler.advance(500);
    expect(received[1]).toMatchObject({ answer: { events: [{ kind: "PUT" }] } });
  });

  it("catches up after a restart", () => {
    const { ask, scheduler, lead, etcd, place, keysAt } = withLag();
    etcd.kill(place);
    ask(lead(), putOf("k"));

    etcd.restart(place);
    expect(keysAt.bind(undefined, place)).toThrow("no answer");
    scheduler.advance(20);
    expect(keysAt(place)).toEqual(["k"]);
  });
});

describe("a follower that is cut off from its peers", () => {
  it("lets writes and linearizable reads hang for 7 s, and then refuses them", () => {
    const { send, scheduler, followers, isolate, etcd } = several();
    const [place] = followers() as [number];
    isolate(place);
    const [written, read] = [send(place, putOf("k")), send(place, rangeOf("k"))];

    scheduler.advance(6_999);
    expect([written.said, read.said]).toEqual([undefined, undefined]);
    scheduler.advance(1);
    expect([written.said, read.said]).toEqual([
      "etcdserver: request timed out",
      "etcdserver: request timed out",
    ]);
    scheduler.advance(20_000);
    expect(etcd.store.revision).toBe(1n);
  });

  it("makes a read that comes while another one hangs wait for that one, and then for itself", () => {
    const { send, scheduler, followers, isolate } = several();
    const [place] = followers() as [number];
    isolate(place);
    send(place, rangeOf("k"));
    scheduler.advance(1_000);
    const second = send(place, rangeOf("k"));

    scheduler.advance(12_999);
    expect(second.said).toBe(undefined);
    scheduler.advance(1);
    expect(second.said).toBe("etcdserver: request timed out");
  });

  it("answers serializable reads, and does not know how long a lease lives", () => {
    const { ask, send, scheduler, followers, isolate } = several();
    const [place] = followers() as [number];
    ask(place, grantOf(7n));
    isolate(place);
    scheduler.advance(2_000);
    const asked = send(place, { kind: "timeToLive", leaseId: 7n, withoutKeys: true });

    expect(ask<RangeAnswer>(place, rangeOf("k", true), 0).kvs).toEqual([]);
    scheduler.advance(7_000);
    expect(asked.said).toBe("etcdserver: no leader");
  });

  it("executes what waited for a leader when it is connected again within 7 s", () => {
    const { send, scheduler, cluster, followers, isolate, etcd } = several();
    const [place] = followers() as [number];
    isolate(place);
    scheduler.advance(3_000);
    const written = send(place, putOf("k"));
    scheduler.advance(1_000);
    cluster.heal();
    scheduler.advance(50);

    expect(written.said).toBe("ok");
    expect(etcd.store.revision).toBe(2n);
  });

  it("keeps its term", () => {
    const { ask, scheduler, followers, isolate, cluster, lead } = several();
    const [place] = followers() as [number];
    const before = lead();
    isolate(place);
    scheduler.advance(20_000);

    expect(ask<RangeAnswer>(place, rangeOf("k", true), 0).header.raftTerm).toBe(2n);
    cluster.heal();
    scheduler.advance(20_000);
    expect([lead(), cluster.nodes[place]!.term]).toEqual([before, 2n]);
  });

  it("climbs in its term on 3.4, and ends the leader's term when it comes back", () => {
    const { ask, scheduler, followers, isolate, cluster, untilLed } = several({ version: "3.4" });
    const [place] = followers() as [number];
    isolate(place);
    scheduler.advance(20_000);
    const { raftTerm } = ask<RangeAnswer>(place, rangeOf("k", true), 0).header;
    expect(raftTerm).toBeGreaterThan(10n);

    cluster.heal();
    scheduler.advance(5);
    expect(cluster.leader).toBe(undefined);
    untilLed();
    expect(cluster.leader!.node.term).toBeGreaterThan(raftTerm);
  });
});

describe("the loss of a leader", () => {
  it.each(SEEDS)("makes the others elect one within 0.9 to 4 s (seed %i)", (seed) => {
    const { scheduler, etcd, lead, untilLed, cluster } = several({ seed });
    const before = lead();
    const { now } = scheduler;
    etcd.kill(before);
    untilLed(before);

    expect(scheduler.now - now).toBeGreaterThan(890);
    expect(scheduler.now - now).toBeLessThan(4_000);
    expect(cluster.leader!.node.term).toBeGreaterThan(2n);
  });

  it("refuses a hanging linearizable read as soon as there is another leader", () => {
    const { send, scheduler, etcd, lead, followers, untilLed } = several();
    const [place] = followers() as [number];
    const before = lead();
    etcd.kill(before);
    const read = send(place, rangeOf("k"));
    untilLed(before);
    scheduler.advance(10);

    expect(read.said).toBe("etcdserver: leader changed");
  });

  it("loses a write that was forwarded to the dead leader: it hangs for 7 s, though there is another one", () => {
    const { send, scheduler, etcd, lead, followers, untilLed } = several();
    const [place] = followers() as [number];
    const before = lead();
    etcd.kill(before);
    const written = send(place, putOf("k"));
    untilLed(before);
    const { now } = scheduler;
    scheduler.advance(6_990 - now);
    expect(written.said).toBe(undefined);
    scheduler.advance(100);

    expect(written.said).toMatch(/^etcdserver: request timed out/);
    expect(etcd.store.revision).toBe(1n);
  });

  it("keeps a write that a member without a leader got, and executes it under the next one", () => {
    const { send, scheduler, etcd, lead, followers, cluster, untilLed } = several({ seed: 4 });
    const before = lead();
    const [place] = followers() as [number];
    etcd.kill(before);
    while (cluster.members[place]!.hasLeader) scheduler.advance(0.1);
    const written = send(place, putOf("k"));
    untilLed(before);
    scheduler.advance(20);

    expect(written.said).toBe("ok");
  });

  it("may execute a write that was in flight, or not", () => {
    const executed = SEEDS.map((seed) => {
      const { send, scheduler, etcd, lead, untilLed } = several({ seed });
      const before = lead();
      send(before, putOf("k"));
      scheduler.advance(0.5);
      etcd.kill(before);
      untilLed(before);
      scheduler.advance(10);
      return etcd.store.revision === 2n;
    });

    expect(new Set(executed)).toEqual(new Set([true, false]));
  });

  it("is not needed to move the leader", () => {
    const { ask, scheduler, cluster, lead, followers } = several();
    const [to] = followers() as [number];
    cluster.moveLeader(to);
    scheduler.advance(10);

    expect(lead()).toBe(to);
    expect(ask<RangeAnswer>(to, rangeOf("k")).header.raftTerm).toBe(3n);
  });

  it("does not follow from the loss of one connection between two members", () => {
    const { scheduler, cluster, lead, followers } = several();
    const before = lead();
    cluster.cut(before, followers()[0]!);
    scheduler.advance(20_000);

    expect(lead()).toBe(before);
  });
});

describe("a paused leader", () => {
  it("answers what arrived meanwhile when it continues, and follows the next leader", () => {
    const { send, scheduler, cluster, lead, untilLed } = several();
    const before = lead();
    cluster.pause(before);
    const read = send(before, rangeOf("k"));
    untilLed(before);
    expect(read.said).toBe(undefined);

    cluster.resume(before);
    scheduler.advance(1_000);
    expect(["ok", "etcdserver: leader changed"]).toContain(read.said);
    expect(cluster.nodes[before]!.lead).toBe(cluster.leader!.node);
  });
});

describe("a lease of several members", () => {
  it("expires through the log: all members delete its keys in one revision", () => {
    const { ask, scheduler, keysAt, etcd } = several();
    ask(0, grantOf(7n));
    ask(1, putOf("k", 7n));
    scheduler.advance(5_600);

    expect([0, 1, 2].map(keysAt)).toEqual([[], [], []]);
    expect(etcd.leases.all).toEqual([]);
  });

  it.each([1, 2, 3])("is renewed at the leader, through whichever member (%i)", (place) => {
    const { ask, scheduler, keepalive, etcd } = several();
    ask(0, grantOf(7n));
    const { received, stream } = keepalive(place - 1);
    for (let n = 0; n < 4; n++) {
      scheduler.advance(3_000);
      stream.send(7n);
    }
    scheduler.advance(10);

    expect(received.map(({ ttl }) => ttl)).toEqual([5, 5, 5, 5]);
    expect(etcd.leases.has(7n)).toBe(true);
  });

  it("has its full TTL again, and an election timeout, when another member leads", () => {
    const { ask, scheduler, etcd, lead, untilLed, followers } = several();
    const [place] = followers() as [number];
    ask(place, grantOf(7n));
    scheduler.advance(4_000);
    const before = lead();
    etcd.kill(before);
    untilLed(before);
    scheduler.advance(10);
    const living = ask<LeaseAnswer>(place, { kind: "timeToLive", leaseId: 7n, withoutKeys: true });

    expect(living.ttlSeconds).toBe(5);
    scheduler.advance(5_940);
    expect(etcd.leases.has(7n)).toBe(true);
    scheduler.advance(600);
    expect(etcd.leases.has(7n)).toBe(false);
  });

  it("does not expire without a leader", () => {
    const { ask, scheduler, etcd, shatter, cluster, untilLed } = several();
    ask(0, grantOf(7n));
    shatter();
    scheduler.advance(60_000);
    expect(etcd.leases.has(7n)).toBe(true);

    cluster.heal();
    untilLed();
    scheduler.advance(6_600);
    expect(etcd.leases.has(7n)).toBe(false);
  });

  it("is renewed by a leader that is cut off for less than two seconds only", () => {
    const { ask, scheduler, lead, isolate, keepalive } = several();
    const before = lead();
    ask(before, grantOf(7n, 60));
    const { received, stream } = keepalive(before);
    isolate(before);
    scheduler.advance(900);
    stream.send(7n);
    scheduler.advance(1_200);
    stream.send(7n);
    scheduler.advance(7_000);

    expect(received.map(({ ttl }) => ttl)).toEqual([60, "etcdserver: no leader"]);
  });

  it("is still renewed by a blocked ex-leader that knows nothing (etcd#15247), in its own term", () => {
    const setup = several({ quirks: { staleExLeader: true } });
    const before = setup.lead();
    setup.ask(before, grantOf(7n, 5));
    setup.cluster.block(before, true);
    setup.untilLed(before);
    const { received, stream } = setup.keepalive(before);
    for (let n = 0; n < 9; n++) {
      stream.send(7n);
      setup.scheduler.advance(1_000);
    }

    expect(setup.etcd.leases.has(7n)).toBe(false);
    expect(received).toHaveLength(9);
    expect(received.at(-1)).toMatchObject({ ttl: 5, term: 2n });
  });

  it("is revoked by that ex-leader when it continues, though the next leader has renewed it", () => {
    const { ask, scheduler, etcd, cluster, lead, untilLed, keepalive } = several({
      quirks: { staleExLeader: true },
    });
    const before = lead();
    ask(before, grantOf(7n, 5));
    cluster.block(before, true);
    untilLed(before);
    const { received, stream } = keepalive(lead());
    for (let n = 0; n < 5; n++) {
      scheduler.advance(1_000);
      stream.send(7n);
    }
    scheduler.advance(10);
    expect(received.at(-1)).toMatchObject({ ttl: 5 });
    cluster.block(before, false);
    scheduler.advance(10);

    expect(etcd.leases.has(7n)).toBe(false);
  });
});

describe("a stream", () => {
  it("that requires a leader ends after three to five seconds without one", () => {
    const { scheduler, followers, isolate, watch } = several();
    const [place] = followers() as [number];
    const { received } = watch(place, { requiresLeader: true });
    scheduler.advance(10);
    isolate(place);
    scheduler.advance(3_000);
    expect(received).toHaveLength(1);
    scheduler.advance(2_000);

    expect(received[1]).toMatchObject({ answer: "etcdserver: no leader" });
  });

  it("that requires a leader is refused by a member without one", () => {
    const { scheduler, followers, isolate, watch } = several();
    const [place] = followers() as [number];
    isolate(place);
    scheduler.advance(2_000);

    expect(watch(place, { requiresLeader: true }).received).toMatchObject([
      { answer: "etcdserver: no leader" },
    ]);
  });

  it("that requires none is silent until the member is connected again", () => {
    const { ask, scheduler, cluster, followers, isolate, watch, lead } = several();
    const [place] = followers() as [number];
    const { received } = watch(place);
    isolate(place);
    ask(lead(), putOf("k"));
    scheduler.advance(16_000);
    expect(received).toHaveLength(1);
    cluster.heal();
    scheduler.advance(10);

    expect(received[1]).toMatchObject({ answer: { events: [{ kind: "PUT" }] } });
  });

  it("of a member that is killed is silent, also after the restart", () => {
    const { ask, scheduler, etcd, followers, watch, lead } = several();
    const [place] = followers() as [number];
    const { received } = watch(place);
    scheduler.advance(10);
    etcd.kill(place);
    expect(etcd.watches).toBe(0);
    etcd.restart(place);
    scheduler.advance(50);
    ask(lead(), putOf("k"));

    expect(received).toHaveLength(1);
  });
});

/** Writes through random members while random faults come and go. */
function storm(seed: number, size: number) {
  const setup = several({ seed, size, version: seed % 2 === 0 ? "3.4" : "3.6" });
  const { scheduler, cluster, etcd, isolate, send } = setup;
  const random = new Random(`storm ${seed}`);
  const faults: readonly ((place: number) => () => void)[] = [
    (place) => (isolate(place), () => cluster.heal()),
    (place) => (etcd.kill(place), () => etcd.restart(place)),
    (place) => (cluster.pause(place), () => cluster.resume(place)),
    (place) => (cluster.block(place, true), () => cluster.block(place, false)),
    (place) => (cluster.cut(place, (place + 1) % size), () => cluster.heal()),
    (place) => (cluster.lag(place, 200), () => cluster.lag(place, 0)),
    (place) => (cluster.moveLeader(place), () => {}),
  ];
  const acknowledged: string[] = [];
  const reads: { readonly asked: Asked; readonly least: number }[] = [];
  for (let n = 0; n < 40; n++) {
    const heal = random.pick(faults)(random.int(size));
    for (let m = 0; m < 5; m++) {
      const key = `${n}/${m}`;
      const asked = send(random.int(size), putOf(key));
      scheduler.advance(random.between(0, random.pick([2, 800])));
      if (asked.said === "ok") acknowledged.push(key);
      // Each write makes a revision.
      reads.push({ asked: send(random.int(size), rangeOf("k")), least: acknowledged.length });
    }
    heal();
  }
  cluster.heal();
  scheduler.advance(20_000);
  return { ...setup, acknowledged, reads };
}

describe("whatever fails", () => {
  it.each(SEEDS)("a linearizable read sees all that was acknowledged before (seed %i)", (seed) => {
    const { reads } = storm(seed, 3);
    const answered = reads.filter(({ asked }) => asked.said === "ok");

    expect(answered.length).toBeGreaterThan(20);
    for (const { asked, least } of answered)
      expect((asked.answer as RangeAnswer).header.revision).toBeGreaterThan(BigInt(least));
  });

  it.each(SEEDS)(
    "all members end with the same history, and with all that was acknowledged (seed %i)",
    (seed) => {
      const { etcd, keysAt, acknowledged } = storm(seed, seed % 3 === 0 ? 5 : 3);
      const truth = etcd.store.keys.map(({ key }) => key.toString());

      for (const [place] of etcd.members.entries()) expect(keysAt(place)).toEqual(truth);
      expect(acknowledged.filter((key) => !truth.includes(key))).toEqual([]);
      expect(acknowledged.length).toBeGreaterThan(20);
    },
  );
});
