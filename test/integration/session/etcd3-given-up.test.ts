// grpc-js sends a queued call in the turn of the event loop in which its connection opens, also one that was cancelled in this turn.
import { Etcd3 } from "etcd3";
import { expect, test } from "vitest";
import { systemClock } from "../../../src/base/util/clock.js";
import { checkConnect } from "../../../src/base/options/connect.js";
import { Etcd3Member } from "../../../src/etcd/etcd3/member.js";
import { startEtcd } from "../../support/etcd/etcd.js";

test("a call that is given up as its connection opens is sent only if it says that it's in doubt", async () => {
  await using etcd = await startEtcd();
  const hosts = etcd.member.endpoint;
  const setting = { token: () => undefined, pingMs: 6000 };
  const member = new Etcd3Member(hosts, setting, { options: checkConnect({ hosts }), clock: systemClock });
  const abort = new AbortController();
  const write = (key: string, onSent: () => void, signal?: AbortSignal) => {
    const success = [{ kind: "put" as const, key, value: "", leaseId: 0n }];
    const txn = { queues: [], compare: [], success, failure: [] };
    return member.txns([txn], { timeoutMs: 10_000, signal, onSent });
  };
  const sent: string[] = [];

  const first = write("first", () => (sent.push("first"), abort.abort()));
  const second = write("second", () => sent.push("second"), abort.signal);

  await expect(second).rejects.toMatchObject({ kind: "cancelled", inDoubt: false });
  await first;
  await write("third", () => sent.push("third"));
  using client = Object.assign(new Etcd3({ hosts }), { [Symbol.dispose]: () => client.close() });
  expect(await client.getAll().keys()).toEqual(["first", "third"]);
  expect(sent).toEqual(["first", "third"]);
  member.retire();
});
