import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../../src/errors.js";
import { type Txn, UnansweredError } from "../../../../src/etcd/port.js";
import { permit } from "../../../../src/lock/queue/permit-mode.js";
import type { QueueEntry } from "../../../../src/lock/queue/entry.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { type FakeCall, keyValue } from "../../../support/fakes/fake-member.js";

const FULL = new EtcdRefusedError("quota", "a:1", "etcdserver: mvcc: database space exceeded");
const SILENT = new UnansweredError("no answer in time");
/** Another place, the oldest, has another limit: so the new one has to write its mark. */
const OTHER = keyValue({ key: "jobs/1", value: JSON.stringify({ permits: 5 }) });

/** A permit that was granted at once; its mark fails with `failure` as long as there is one. */
class MarkedPermit {
  readonly cluster = new FakeCluster();
  readonly clock = this.cluster.clock;
  readonly queue = LockTable.of(this.cluster.lease(3600)).queue("jobs");
  /** When each attempt to write the mark was sent. */
  readonly marks: number[] = [];

  constructor(public failure: Error | undefined) {
    this.cluster.onCall = (call) => this.#answer(call);
  }

  async enter(): Promise<QueueEntry> {
    const entry = await this.queue.tryJoin({}, { mode: permit(3) });
    if (!entry) throw new Error("no permit was free");
    await settle();
    return entry;
  }

  #answer(call: FakeCall): void {
    if (call.method === "range") return call.answer({ header: HEADER, kvs: [OTHER], more: false, count: 1 });
    const { compare: when, success } = call.request as Txn;
    const [compare] = when;
    const isMark = success[0]?.kind === "put" && compare?.kind === "created at" && compare.revision > 0n;
    if (isMark) this.marks.push(call.sentAt);
    if (isMark && this.failure) return call.fail(this.failure);
    const told = { kvs: [OTHER], more: false, count: 2 };
    call.answer({
      header: HEADER,
      succeeded: true,
      ranges: success.map(({ kind }) => (kind === "range" ? told : undefined)),
    });
  }
}

describe("a permit's mark", () => {
  test("that stays unanswered is written again, after pauses that grow, until etcd has it", async () => {
    const permitted = new MarkedPermit(SILENT);
    await permitted.enter();
    expect(permitted.marks).toHaveLength(1);

    await permitted.clock.pass(20_000);
    const { marks } = permitted;
    const pauses = marks.slice(1).map((sentAt, n) => sentAt - (marks[n] ?? 0));
    expect(Math.max(...pauses.slice(0, 2))).toBeLessThan(Math.max(...pauses.slice(-5)));
    expect(marks.length).toBeGreaterThan(20);
    expect(marks.length).toBeLessThan(80);

    permitted.failure = undefined;
    await permitted.clock.pass(2000);
    const written = marks.length;
    await permitted.clock.pass(20_000);
    expect(marks).toHaveLength(written);
  });

  test("that etcd rejects is not written again: who waits behind it finds out by reads", async () => {
    const permitted = new MarkedPermit(FULL);
    await permitted.enter();

    await permitted.clock.pass(20_000);

    expect(permitted.marks).toHaveLength(1);
  });

  test("does not keep the session from being orphaned", async () => {
    const permitted = new MarkedPermit(SILENT);
    await permitted.enter();

    await permitted.queue.lease.inFlight.settled(() => Promise.resolve());

    expect(permitted.marks).toHaveLength(1);
  });

  test("is not written again once the permit is released", async () => {
    const permitted = new MarkedPermit(SILENT);
    const entry = await permitted.enter();

    await permitted.queue.leave(entry);
    await permitted.clock.pass(20_000);

    expect(permitted.marks).toHaveLength(1);
  });

  test("is not written again once the session is over", async () => {
    const permitted = new MarkedPermit(SILENT);
    await permitted.enter();

    permitted.queue.lease.abandon();
    await permitted.clock.pass(20_000);

    expect(permitted.marks).toHaveLength(1);
  });
});
