import { describe, expect, it } from "vitest";
import {
  encodeAuthenticate,
  encodeGrant,
  encodeKeepalive,
  encodeRange,
  encodeRevoke,
  encodeTimeToLive,
  encodeTxns,
  encodeWatchCancel,
  encodeWatchCreate,
  encodeWatchProgress,
} from "../../../src/etcd/http2/codec-write.js";
import type { Compare, Operation, Txn } from "../../../src/etcd/port.js";
import { mutantOf, sources } from "../../sim/run/build.js";
import { runLive } from "../../sim/run/live.js";
import { overTransport, shortOf } from "../../sim/run/swarm.js";
import {
  decodeKeepalive,
  decodeRange,
  decodeTxns,
  decodeUnary,
  decodeWatch,
} from "../../sim/http2/decode.js";

const build = await sources();
const settingOf = (seed: number) => ({ ...overTransport(shortOf(String(seed))), build });

describe("a simulated run over the client's own HTTP/2 and gRPC", { timeout: 60_000 }, () => {
  it("breaks none of the lab's invariants, whatever its members do to the connections", async () => {
    for (let seed = 1; seed <= 2; seed++) {
      const { verdict } = await runLive(settingOf(seed), Infinity);
      expect({ seed, violations: verdict.violations }).toEqual({ seed, violations: {} });
    }
  });

  it("reports bytes that are no HTTP/2 as an error of the process that has sent them", async () => {
    const broken = { ...settingOf(1), build: await mutantOf("writes-reordered") };
    const { verdict } = await runLive(broken, Infinity);
    expect(verdict.violations["crash"]?.[0]).toMatch(/ protocol: /);
  });
});

/** A request has its gRPC prefix. */
const bodyOf = (request: Buffer): Buffer => request.subarray(5);
const bytes = (text: string): Buffer => Buffer.from(text);

const compare: readonly Compare[] = [
  { kind: "created at", key: bytes("a/1"), revision: 0n },
  { kind: "created at", key: bytes("a/2"), revision: 77n },
  { kind: "modified at", key: "a/3", revision: 2n ** 62n },
  { kind: "value is", key: "a/4", value: "ü" },
  { kind: "nothing in", key: "a/", end: "a0" },
];
const range = { key: bytes("a/"), end: bytes("a0"), limit: 2, maxCreateRevision: 9n } as const;
const success: readonly Operation[] = [
  { kind: "put", key: "a/1", value: JSON.stringify({ owner: "w" }), leaseId: 2n ** 62n + 1n },
  { kind: "delete", key: bytes("a/2") },
  { kind: "range", ...range, order: "oldest first" },
];
const failure: readonly Operation[] = [
  { kind: "range", key: bytes("b"), order: "newest first", keysOnly: true, serializable: true, revision: 5n },
];
const txn: Txn = { queues: [], compare, success, failure };

describe("the simulated member reads what the client writes", () => {
  it.each<readonly [string, unknown, unknown]>([
    ["a transaction", decodeTxns(bodyOf(encodeTxns([txn]))), [txn]],
    ["several transactions", decodeTxns(bodyOf(encodeTxns([txn, txn]))), [txn, txn]],
    ["a range", decodeRange(bodyOf(encodeRange(range))), range],
    [
      "a grant",
      decodeUnary("grant", bodyOf(encodeGrant(7n, 5))),
      { kind: "grant", leaseId: 7n, ttlSeconds: 5 },
    ],
    ["a revoke", decodeUnary("revoke", bodyOf(encodeRevoke(7n))), { kind: "revoke", leaseId: 7n }],
    [
      "a question for the keys of a lease",
      decodeUnary("timeToLive", bodyOf(encodeTimeToLive(7n))),
      { kind: "timeToLive", leaseId: 7n, withoutKeys: false },
    ],
    [
      "a question for the time of a lease",
      decodeUnary("timeToLive", bodyOf(encodeTimeToLive(7n, { withoutKeys: true }))),
      { kind: "timeToLive", leaseId: 7n, withoutKeys: true },
    ],
    [
      "a password",
      decodeUnary("authenticate", bodyOf(encodeAuthenticate("worker", "secret"))),
      { kind: "authenticate", username: "worker", password: "secret" },
    ],
    ["a renewal", decodeKeepalive(bodyOf(encodeKeepalive(7n))), 7n],
    ["the end of a watch", decodeWatch(bodyOf(encodeWatchCancel(3))), { cancel: 3 }],
    ["a question for progress", decodeWatch(bodyOf(encodeWatchProgress())), { probe: true }],
    ...(["ALL", "PUT", "DELETE"] as const).map((events) => {
      const create = { watchId: 3, key: bytes("a/"), end: bytes("a0"), startRevision: 8n, events };
      return [`a watch of ${events}`, decodeWatch(bodyOf(encodeWatchCreate(create))), { create }] as const;
    }),
  ])("%s", (_, read, written) => {
    expect(read).toEqual(written);
  });
});
