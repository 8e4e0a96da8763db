import { describe, expect, it } from "vitest";
import { assertOwnTransport, entryOf } from "../../../bench/peers/build.js";
import { callOf, caller } from "../../../bench/peers/calls.js";
import type { Session } from "../../../bench/peers/client.js";
import { Cycles } from "../../../bench/worker/cycles.js";
import type { Txn, TxnAnswer } from "../../../src/etcd/port.js";
import { NotRunError } from "../../lab/runner/ground.js";

const answer = (succeeded: boolean): TxnAnswer => ({
  header: { clusterId: "1", revision: 2n, memberId: "1", raftTerm: 1n },
  ...{ succeeded, ranges: [undefined] },
});

describe("a bare call", () => {
  it("is one transaction that puts the key without a lease", async () => {
    const sent: Txn[] = [];
    await callOf((txns) => Promise.resolve(txns.map((txn) => (sent.push(txn), answer(true)))), "name")();
    expect(sent).toEqual([
      {
        ...{ queues: [], compare: [], failure: [] },
        success: [{ kind: "put", key: "name", value: "bare", leaseId: 0n }],
      },
    ]);
  });

  it("fails where the answer is missing or says that nothing was put", async () => {
    for (const answers of [[], [answer(false)]])
      await expect(callOf(() => Promise.resolve(answers), "name")()).rejects.toThrow("has not put");
  });
});

describe("a task of bare calls", () => {
  const taskOf = (cycles: number) =>
    ({ kind: "call", name: "n", names: "one", contenders: 1, cycles, holdMs: 0, forMs: 60_000 }) as const;

  it("notes and counts each, one after the other", async () => {
    let open = 0;
    const most: number[] = [];
    const client = caller(
      async () => {
        most.push(++open);
        await Promise.resolve();
        open--;
        return [answer(true)];
      },
      () => {},
    );
    const calls = new Cycles([await client.session()], taskOf(3));
    await expect.poll(() => calls.granted).toBe(3);
    await calls.stop(() => Promise.resolve());
    expect(most).toEqual([1, 1, 1]);
    expect(calls.journal).toHaveLength(3 * 4);
  });

  it("is refused by a client that makes none", async () => {
    const session: Session = {
      lockable: () => ({ lock: () => expect.fail("asked for a lock") }),
      close: () => Promise.resolve(),
    };
    const calls = new Cycles([session], taskOf(1));
    await Promise.resolve();
    await expect(calls.stop(() => Promise.resolve())).rejects.toThrow("no bare calls");
  });
});

describe("another build", () => {
  it("is found by its folder", () => {
    expect(entryOf("/builds/old")).toBe("file:///builds/old/index.js");
  });

  it("is not measured where it has no transport of its own", () => {
    expect(() => assertOwnTransport("/builds/old")).toThrow(NotRunError);
  });
});
