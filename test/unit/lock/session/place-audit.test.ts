import { expect, test } from "vitest";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { LatePutSweeper, PlaceAudit } from "../../../../src/lock/session/key-audit.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

test.each([
  ["missing: it isn't granted, though a watch has it by then", [], true],
  ["put again: another entry has it", [60n], false],
  ["there", [50n], false],
])("the read of a waiting entry whose key no list shows finds it %s", async (_, found, isGone) => {
  const cluster = new FakeCluster();
  const lease = cluster.lease();
  const queue = LockTable.of(lease).queue("jobs");
  const entry = queue.own.make().confirmed(50n);
  queue.own.add(entry);
  lease.waits.add({ unwatched: [entry], placeLost: () => undefined, sessionEnded: () => undefined });
  new PlaceAudit(lease, new LatePutSweeper(lease).audit).audited([]);
  await settle();

  const kvs = found.map((createRevision) => keyValue({ key: entry.key, createRevision }));
  const header = { ...HEADER, revision: 70n };
  cluster.member.of("range")[0]!.answer({ header, kvs, more: false, count: kvs.length });
  await settle();

  expect([entry.knownGone, queue.grant(entry, { state: "granted", visible: true })]).toEqual([
    isGone,
    !isGone,
  ]);
});
