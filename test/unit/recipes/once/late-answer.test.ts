import { expect, test } from "vitest";
import { SlotWaiter } from "../../../../src/recipes/once/claim.js";
import { SlotPlan } from "../../../../src/recipes/once/marks.js";
import type { Txn } from "../../../../src/etcd/port.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const TTL_SECONDS = 10;
const NOTHING = { kvs: [], more: false, count: 0 };

/** The keys that a transaction puts. */
const putsOf = ({ success }: Txn) =>
  success.flatMap((operation) => (operation.kind === "put" ? [operation] : []));

test("a claim whose answer is read after the deadline is void: another call may have run the slot meanwhile", async () => {
  const cluster = new FakeCluster();
  const { clock } = cluster;
  const lease = cluster.lease(TTL_SECONDS);
  const options = { rerun: "never", keep: 10, skips: false } as const;
  const plan = new SlotPlan("jobs", 1, { services: lease.services, options });
  const waiter = new SlotWaiter(lease, plan, { kind: "mutex" });
  const outcome = waiter.granted.catch((error: unknown) => error);
  await settle();
  const { member } = cluster;
  const { header } = member;
  const answer = async (n: number, more: object) => {
    await settle();
    member.of("txn")[n]?.answer({ header, ranges: [], ...more });
    await settle();
  };

  // The queue is not empty, so the call joins it, and holds when its join is answered.
  const oldest = { kvs: [keyValue({ key: "jobs/1" })], more: false, count: 1 };
  await answer(0, { succeeded: false, ranges: [NOTHING, NOTHING, NOTHING, oldest] });
  const [entry] = putsOf(member.of("txn")[1]?.request as Txn);
  const own = keyValue({ key: String(entry?.key), createRevision: header.revision, leaseId: lease.leaseId });
  await answer(1, { succeeded: true, ranges: [undefined, { kvs: [own], more: false, count: 1 }] });
  clock.freeze(TTL_SECONDS * 1000);
  await answer(2, { succeeded: true, ranges: [undefined, NOTHING] });

  expect(await outcome).toMatchObject({ code: "SESSION_LOST", loss: "expired" });
});
