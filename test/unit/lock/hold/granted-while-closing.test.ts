// A session is closed in the microtasks between the grant of a call and the moment in which its caller goes on.
import { expect, test } from "vitest";
import { NO_LOCK_OPTIONS } from "../../../../src/base/options/lock.js";
import { acquireHold } from "../../../../src/lock/hold/acquire.js";
import { ExclusiveHoldHandle } from "../../../../src/lock/hold/hold.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const REVISION = 50n;
const WAIT = { signal: undefined, timeoutMs: undefined, rejoin: false };
/** More than there are. */
const MICROTASKS = 20;

/** What the call has come to when its caller goes on; `after`: so many microtasks after etcd's answer, the session is closed with a drain. */
async function closedAfter(after: number) {
  const cluster = new FakeCluster();
  const lease = cluster.lease();
  const lock = { name: "jobs", kind: "mutex", handle: ExclusiveHoldHandle } as const;
  const outcome = acquireHold({ source: lease.source, options: NO_LOCK_OPTIONS, ...lock }, () => WAIT).then(
    (lock) => ({ lock, held: lock.held, aborted: lock.signal.aborted }),
    (error: unknown) => ({ error }),
  );
  await settle();
  const own = keyValue({
    key: `jobs/${LEASE_ID.toString(16)}`,
    createRevision: REVISION,
    modRevision: REVISION,
  });
  const range = { kvs: [own], more: false, count: 1 };
  cluster.member
    .of("txn")[0]!
    .answer({ succeeded: true, header: { ...HEADER, revision: REVISION }, ranges: [range] });
  for (let n = 0; n < after; n++) await Promise.resolve();
  void lease.close(60_000);
  await settle();
  return { cluster, lease, outcome: await outcome };
}

test.each(Array.from({ length: MICROTASKS }, (_, n) => n))(
  "a call either rejects or is held until the drain is over: after %i microtasks",
  async (after) => {
    const { cluster, lease, outcome } = await closedAfter(after);

    if ("error" in outcome) return expect(outcome.error).toMatchObject({ code: "SESSION_CLOSED" });
    expect([outcome.held, outcome.aborted]).toEqual([true, false]);
    expect(outcome.lock.held).toBe(true);
    void outcome.lock.release();
    await settle();
    cluster.member.of("txn")[1]!.answer({ succeeded: true, header: HEADER, ranges: [undefined] });
    await settle();
    expect(lease.signal.aborted).toBe(true);
  },
);
