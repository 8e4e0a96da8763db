import { expect, test } from "vitest";
import { HeldPlace } from "../../src/hold.js";
import { OwnPlaces } from "../../src/own-places.js";
import { Queue } from "../../src/queue.js";
import { settle } from "../support/fake-clock.js";
import { FakeCluster } from "../support/fake-connection.js";

test("a hold whose watch broke in the moment of the grant is watched anew", async () => {
  const cluster = new FakeCluster();
  const lease = cluster.lease();
  const place = new OwnPlaces(lease, "jobs").make();
  place.revision = 50n;
  // The listener of a wait that is over: it does not care any more.
  const deaf = { created: () => {}, event: () => {}, moved: () => {}, refused: () => {} };
  const ownWatch = cluster.connection.watches.watch({ key: place.key, events: "DELETE" }, deaf);
  cluster.clock.advance(0);
  cluster.member.watches[0]!.created(place.key, 90n);

  cluster.member.watches[0]!.end();
  const lock = new HeldPlace(Queue.of(lease, "jobs"), { place, ownWatch, deletedAt: 89n });
  await cluster.clock.pass(100);
  cluster.member.watches[0]!.created(place.key, 95n);
  cluster.member.watches[0]!.deleted(place.key, 96n);
  await settle();

  expect(lock.held).toBe(false);
});

test("`release` resolves after one TTL though renewals pass and the delete is never answered", async () => {
  const cluster = new FakeCluster();
  const lease = cluster.lease(12);
  const place = new OwnPlaces(lease, "jobs").make();
  place.revision = 50n;
  const lock = new HeldPlace(Queue.of(lease, "jobs"), { place, ownWatch: undefined, deletedAt: undefined });
  let released = false;

  void lock.release().then(() => (released = true));
  for (let second = 1; second < 12; second++) {
    await cluster.clock.pass(1000);
    lease.renewed(cluster.clock.now(), 12);
  }
  expect(released).toBe(false);
  await cluster.clock.pass(1000);

  expect(released).toBe(true);
  expect(lease.state).toBe("live");
  expect(cluster.connected.flatMap((member) => member.of("txn")).length).toBeGreaterThan(1);
});
