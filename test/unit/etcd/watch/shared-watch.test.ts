import { describe, expect, test } from "vitest";
import type { WatchEvent } from "../../../../src/etcd/port.js";
import type { Watch } from "../../../../src/etcd/watch-hub.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";

/** At this revision etcd creates the wide watch. */
const CREATED = 60n;

/** A wide watch on `feeds/`, created by etcd, and what all listeners were told. */
function world({ created = true } = {}) {
  const cluster = new FakeCluster();
  const told: string[] = [];
  const { watches } = cluster.services;
  const listenerOf = (name: string) => ({
    created: (revision: bigint) => void told.push(`${name} created ${revision}`),
    events: (all: readonly WatchEvent[]) =>
      void told.push(`${name} ${all.map(({ kv }) => `${kv.key.toString()}@${kv.modRevision}`).join()}`),
    interrupted: (why: string) => void told.push(`${name} ${why}`),
    refused: (error: Error) => void told.push(`${name} refused ${error.message}`),
  });
  const wide = watches.watch(
    { key: "feeds/", end: "feeds0", events: "ALL", isWide: true },
    listenerOf("wide"),
  );
  cluster.clock.advance(0);
  const stream = cluster.member.watches[0]!;
  if (created) stream.created("feeds/", CREATED);
  told.length = 0;
  const watch = (name: string, key: string, from: bigint, end?: string): Watch => {
    const target = { key, end, events: "DELETE", reuseFrom: from } as const;
    return watches.watch(target, listenerOf(name));
  };
  return { cluster, stream, told, wide, watch };
}

describe("a watch in the range of a wide one", () => {
  test("shares it: no request, created already, and told of its own deletions before the wide one is", () => {
    const { stream, told, watch } = world();
    const key = watch("key", "feeds/shard/1/a", CREATED + 1n);
    const range = watch("range", "feeds/shard/2/a", CREATED + 1n, "feeds/shard/2/b\0");

    expect([key.createdAt, range.createdAt, stream.creates.length]).toEqual([CREATED, CREATED, 1]);
    stream.deleted(["feeds/shard/1/a", "feeds/shard/2/b", "feeds/shard/2/c"], 70n);
    expect(told).toEqual([
      "key feeds/shard/1/a@70",
      "range feeds/shard/2/b@70",
      "wide feeds/shard/1/a@70,feeds/shard/2/b@70,feeds/shard/2/c@70",
    ]);
    expect([key.lastEvent, range.lastEvent]).toEqual([70n, 70n]);
  });

  test("knows of a deletion that came before it, so that its owner reads", () => {
    const { stream, watch } = world();
    stream.deleted("feeds/shard/1/a", 70n);
    expect(watch("older", "feeds/shard/1/a", 69n).lastEvent).toBe(70n);
    expect(watch("younger", "feeds/shard/1/a", 71n).lastEvent).toBe(0n);
    expect(watch("other", "feeds/shard/1/b", 69n).lastEvent).toBe(0n);
  });

  test("is as old as the wide one, until that has reported an event: etcd may serve the first one late", () => {
    const { stream, wide, watch } = world();
    expect(watch("young", "feeds/shard/1/a", CREATED + 1n).createdMs).toBe(wide.createdMs);
    stream.deleted("feeds/shard/1/b", 70n);
    expect(watch("later", "feeds/shard/1/a", CREATED + 1n).createdMs).toBe(-Infinity);
  });

  test("does not forget that there were deletions which it can't tell any more", () => {
    const { stream, watch } = world();
    for (let n = 0n; n < 9000n; n++) stream.deleted("feeds/shard/1/a", 70n + n);
    expect(watch("old", "feeds/shard/9/z", 71n).lastEvent).toBeGreaterThan(71n);
    expect(watch("new", "feeds/shard/9/z", 9070n).lastEvent).toBe(0n);
  });

  test.each([
    ["before the wide one is created", { created: false }, "feeds/shard/1/a", CREATED + 1n, undefined],
    ["for what happened before that", {}, "feeds/shard/1/a", CREATED, undefined],
    ["outside its range", {}, "other/shard/1/a", CREATED + 1n, undefined],
    ["over several directories", {}, "feeds/shard/1/", CREATED + 1n, "feeds/shard/10"],
  ])("does not share it %s", (_when, how, key, from, end) => {
    const { cluster, stream, watch } = world(how);
    watch("own", key, from, end);
    cluster.clock.advance(0);
    expect(stream.creates).toHaveLength(2);
  });

  test("is told nothing after it was cancelled, also by a listener before it", () => {
    const { stream, told, watch } = world();
    watch("gone", "feeds/shard/1/a", CREATED + 1n).cancel();
    stream.deleted("feeds/shard/1/a", 70n);
    expect(told).toEqual(["wide feeds/shard/1/a@70"]);
    expect(stream.cancels).toEqual([]);
  });

  test("has to be made anew when the wide one is cancelled, and when the streams move", () => {
    const { cluster, told, wide, watch } = world();
    const key = watch("key", "feeds/shard/1/a", CREATED + 1n);
    wide.cancel();
    expect([told, key.over]).toEqual([["key broken"], true]);
    const again = watch("again", "feeds/shard/1/a", CREATED + 1n);
    expect(again.createdAt).toBeUndefined();

    const other = world();
    other.watch("key", "feeds/shard/1/a", CREATED + 1n);
    other.stream.end();
    expect(other.told).toEqual(["key broken", "wide broken"]);
    cluster.clock.advance(0);
  });
});
