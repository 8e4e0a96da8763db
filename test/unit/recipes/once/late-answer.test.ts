import { expect, test } from "vitest";
import { SlotWaiter } from "../../../../src/recipes/once/claim.js";
import { SlotPlan } from "../../../../src/recipes/once/slots.js";
import type { Txn } from "../../../../src/etcd/port.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const TTL_SECONDS = 10;
const NOTHING = { kvs: [], more: false, count: 0 };

/** The keys that a transaction puts. */
const putsOf = ({ success }: Txn) =>
  success.flatMap((operation) => (operation.kind === "put" ? [operation] : []));

/** One call of `once`, and its transactions. */
function world() {
  const cluster = new FakeCluster();
  const lease = cluster.lease(TTL_SECONDS);
  const none = { keepsResult: false, fingerprint: undefined };
  const options = { rerun: "never", ifRunning: "skip", skips: false, ...none } as const;
  const plan = new SlotPlan("jobs", 1, { services: lease.services, options, keep: 10 });
  const { granted } = new SlotWaiter(lease, plan, { kind: "mutex" });
  const txn = async (n: number) => {
    await settle();
    return cluster.member.of("txn")[n]!;
  };
  const answer = async (n: number, more: object) => {
    (await txn(n)).answer({ header: cluster.member.header, ranges: [], ...more });
    await settle();
  };
  return { cluster, lease, plan, granted, txn, answer };
}

test("a claim whose answer is read after the deadline is void: another call may have run the slot meanwhile", async () => {
  const { cluster, lease, granted, txn, answer } = world();
  const outcome = granted.catch((error: unknown) => error);
  await settle();
  const { header } = cluster.member;

  // The queue is not empty, so the call joins it, and holds when its join is answered.
  const oldest = { kvs: [keyValue({ key: "jobs/1" })], more: false, count: 1 };
  await answer(0, { succeeded: false, ranges: [NOTHING, NOTHING, oldest, NOTHING] });
  const [entry] = putsOf((await txn(1)).request as Txn);
  const own = keyValue({ key: String(entry?.key), createRevision: header.revision, leaseId: lease.leaseId });
  await answer(1, { succeeded: true, ranges: [undefined, { kvs: [own], more: false, count: 1 }] });
  cluster.clock.freeze(TTL_SECONDS * 1000);
  await answer(2, { succeeded: true, ranges: [undefined, NOTHING] });

  expect(await outcome).toMatchObject({ code: "SESSION_LOST", loss: "expired" });
});

test("a claim whose key is known to be gone when its answer is read is void: the slot is claimed again, over its own mark", async () => {
  const { cluster, lease, plan, granted, txn, answer } = world();
  const [entry, mark] = putsOf((await txn(0)).request as Txn);
  const { revision } = cluster.member.header;

  lease.services.watches.shownGone(String(entry?.key), revision + 1n);
  await answer(0, { succeeded: true, ranges: [undefined, undefined, NOTHING] });
  const own = keyValue({ key: plan.at.key, value: String(mark?.value), modRevision: revision });
  const ranges = [NOTHING, { kvs: [own], more: false, count: 1 }, NOTHING, NOTHING];
  await answer(1, { succeeded: false, ranges });
  const compare = [{ kind: "modified at", key: plan.at.key, revision }];
  expect((await txn(2)).request).toMatchObject({ compare: expect.arrayContaining(compare) as unknown });
  await answer(2, {
    header: { ...cluster.member.header, revision: revision + 2n },
    succeeded: true,
    ranges: [undefined, undefined, NOTHING],
  });

  expect(await granted).toMatchObject({ claim: { hold: { revision: revision + 2n, held: true } } });
});
