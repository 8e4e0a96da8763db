import { describe, expect, test } from "vitest";
import { PutsBefore } from "../../../../src/lock/queue/puts-before.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const [SINCE, OTHER, OWN] = [10n, 12n, 15n];

function world() {
  const cluster = new FakeCluster();
  const lease = cluster.lease(600);
  const { own } = LockTable.of(lease).queue("jobs");
  const entry = own.make().confirmed(OWN);
  own.add(entry);
  const puts = new PutsBefore(entry, SINCE);
  cluster.clock.advance(0);
  const stream = () => cluster.member.watches.at(-1)!;
  const watch = () => stream().creates.at(-1)!;
  const created = () => stream().created("jobs/", OWN);
  const put = (key: string, at: bigint) => {
    const kv = keyValue({ key, createRevision: at, modRevision: at });
    stream().answer({ watchId: watch().watchId, events: [{ kind: "PUT", kv }] }, at);
  };
  return { cluster, lease, entry, puts, stream, watch, created, put };
}

describe("what others have put before the own key", () => {
  test("is all of it that etcd's history has, up to the own put", async () => {
    const { lease, entry, puts, watch, stream, created, put } = world();
    expect(watch()).toMatchObject({ key: "jobs/", end: "jobs0", startRevision: SINCE + 1n, events: "PUT" });
    created();
    put("jobs/5a", OTHER);
    put(entry.key, OWN);
    expect(await puts.found).toMatchObject([{ createRevision: OTHER }]);
    expect(stream().cancels).toEqual([watch().watchId]);
    expect(lease.waits.size).toBe(0);
  });

  test("is read once more if the watch is silent, or its stream breaks", async () => {
    const { cluster, entry, puts, stream, watch, created, put } = world();
    created();
    put("jobs/5a", OTHER);
    cluster.clock.advance(6000);
    expect(stream().creates).toHaveLength(2);
    created();
    put("jobs/5a", OTHER);
    stream().end();
    cluster.clock.advance(100);
    expect([cluster.connected.length, watch().startRevision]).toEqual([2, SINCE + 1n]);
    created();
    put("jobs/5a", OTHER);
    put(entry.key, OWN);
    expect(await puts.found).toHaveLength(1);
  });

  test("is not known if etcd has compacted it", async () => {
    const { puts, stream, watch, created } = world();
    created();
    stream().answer({ watchId: watch().watchId, cancelled: true, compacted: true });
    expect(await puts.found).toBeUndefined();
  });

  test("is not waited for when etcd rejects the watch, or the session ends", async () => {
    const { puts, stream } = world();
    stream().answer({ created: true, cancelled: true, cancelReason: "etcdserver: permission denied" });
    await expect(puts.found).rejects.toMatchObject({ code: "ETCD_REFUSED" });

    const ended = world();
    ended.lease.lose("revoked");
    await expect(ended.puts.found).rejects.toBe(ended.lease.signal.reason);
  });
});
