// An etcd whose quota is used up: the simulated etcd answers as the real one does.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Operation, Txn } from "../../../src/etcd/port.js";
import { Client } from "../../sim/fidelity/auth/client.js";
import { Real } from "../../sim/fidelity/auth/real.js";
import { Simulated } from "../../sim/fidelity/auth/simulated.js";
import type { Ask } from "../../sim/fidelity/auth/steps.js";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";

const tokens = { kind: "simple", ttlMs: 300_000 } as const;
const QUOTA = 2 << 20;

let real: Real;
beforeAll(async () => void (real = await Real.start([`--quota-backend-bytes=${QUOTA}`])), 60_000);
afterAll(() => real.stop());

const put = (key: string, leaseId = 0n): Operation => ({ kind: "put", key, value: "v", leaseId });
const read: Operation = { kind: "range", key: "a/", end: "a0" };
const txn = (success: readonly Operation[], failure: readonly Operation[] = []): Txn => ({
  ...{ queues: [], compare: [], success, failure },
});
const txns = (...txns: readonly Txn[]): Ask => ({ kind: "txns", txns });

const BEFORE: readonly Ask[] = [
  { kind: "grant", leaseId: 11n },
  { kind: "grant", leaseId: 12n },
  txns(txn([put("a/1", 11n), put("a/2", 12n), put("a/3")])),
];
const DURING: readonly Ask[] = [
  txns(txn([put("a/1")])),
  txns(txn([read], [put("a/1")])),
  txns(txn([put("a/4")]), txn([put("a/5")])),
  txns(txn([read])),
  txns(txn([read, { kind: "delete", key: "a/3" }])),
  txns(txn([{ kind: "delete", key: "a/none" }]), txn([read])),
  { kind: "range", range: { key: "a/", end: "a0" } },
  { kind: "grant", leaseId: 13n },
  { kind: "grant", leaseId: 11n },
  { kind: "renew", leaseId: 11n },
  { kind: "timeToLive", leaseId: 11n, withoutKeys: false },
  { kind: "watch", key: "a/1" },
  { kind: "revoke", leaseId: 11n },
  { kind: "revoke", leaseId: 13n },
  { kind: "compact", revision: 2n },
];
const AFTER: readonly Ask[] = [
  txns(txn([put("a/1", 12n)])),
  { kind: "grant", leaseId: 14n },
  txns(txn([read])),
];

async function answersOf(client: Client, asks: readonly Ask[]): Promise<string[]> {
  const answers: string[] = [];
  for (const ask of asks) answers.push(await client.ask(ask));
  return answers;
}

// Not compared: whether a request that is smaller than the one that raised the alarm would still fit.
test("the alarm rejects the same requests, and after it all are served again", async () => {
  const version = real.version.split(".").slice(0, 2).join(".") as SimVersion;
  const simulated = new Simulated({ version, tokens });
  const [theirs, ours] = [new Client(real), new Client(simulated)];
  expect(await answersOf(ours, BEFORE)).toEqual(await answersOf(theirs, BEFORE));

  simulated.fill(await real.fill());
  const during = await answersOf(theirs, DURING);
  expect(await answersOf(ours, DURING)).toEqual(during);
  expect(during.filter((answer) => answer.includes("mvcc: database space exceeded"))).toHaveLength(
    simulated.etcd.quirks.nestedPutsAreFree ? 4 : 5,
  );

  simulated.clear(await real.makeSpace());
  expect(await answersOf(ours, AFTER)).toEqual(await answersOf(theirs, AFTER));
  expect([await real.alarm(), simulated.etcd.quota.alarm]).toEqual([false, false]);
  theirs.close();
  ours.close();
});
