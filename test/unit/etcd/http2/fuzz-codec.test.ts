// The codec against etcd3's: random requests and answers, encoded and decoded by both. LEASEHOLD_FUZZ=15000 runs that many of
// each kind.
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import * as answers from "../../../../src/etcd/http2/codec-read.js";
import * as requests from "../../../../src/etcd/http2/codec-write.js";
import * as etcd3 from "../../../../src/etcd/etcd3/codec.js";
import type { Compare, Operation, Range, Txn, WatchRequest } from "../../../../src/etcd/port.js";
import { methodOf, type Method } from "../../../support/fixtures/etcd-protos.js";
import { FuzzTally } from "../../../support/fixtures/fuzz-tally.js";
import { scramble, SHAPES, type Shape } from "../../../support/fixtures/wire-format.js";

const RUNS = { numRuns: Number(process.env["LEASEHOLD_FUZZ"] ?? 150) };
const tally = new FuzzTally(RUNS.numRuns);
const TIME_LIMIT_MS = 600_000;
const PREFIX = 5;

const TXN = methodOf("KV.Txn");
const RANGE = methodOf("KV.Range");
const WATCH = methodOf("Watch.Watch");
const GRANT = methodOf("Lease.LeaseGrant");
const KEEPALIVE = methodOf("Lease.LeaseKeepAlive");
const TIME_TO_LIVE = methodOf("Lease.LeaseTimeToLive");
const AUTHENTICATE = methodOf("Auth.Authenticate");

const EDGES = [0n, 1n, -1n, 127n, 128n, 2n ** 31n, 2n ** 32n, 2n ** 53n - 1n, 2n ** 53n, 2n ** 53n + 1n];
const MAX = 2n ** 63n - 1n;
const int64 = fc.oneof(fc.constantFrom(...EDGES, MAX, -MAX - 1n), fc.bigInt({ min: -MAX - 1n, max: MAX }));
const count = fc.oneof(fc.nat(300), fc.constantFrom(-1, 2 ** 31, 2 ** 32 + 1, Number.MAX_SAFE_INTEGER));
const text = fc.oneof(
  fc.string({ maxLength: 40 }),
  fc.string({ unit: "binary", maxLength: 300 }),
  fc.constantFrom("", "jobs/nightly/6a1f", "ключ/ß", "x".repeat(127), "é".repeat(64), "x".repeat(5000)),
);
const bytes = fc.uint8Array({ maxLength: 60 }).map((array) => Buffer.from(array));
const key = fc.oneof(text, bytes);
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

/** Without the members that are undefined. */
const defined = <T extends object>(value: T): T =>
  Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as T;

const range = fc
  .record({
    key,
    end: optional(key),
    order: optional(fc.constantFrom("oldest first", "newest first")),
    limit: optional(count),
    maxCreateRevision: optional(int64),
    revision: optional(int64),
    serializable: optional(fc.boolean()),
    keysOnly: optional(fc.boolean()),
  })
  .map((given) => defined(given) as Range);
const revisions = fc.bigInt({ min: 0n, max: 2n ** 62n });
const compare: fc.Arbitrary<Compare> = fc.oneof(
  fc.record({ kind: fc.constant("created at" as const), key, revision: int64 }),
  fc.record({ kind: fc.constant("modified at" as const), key: text, revision: int64 }),
  fc.record({ kind: fc.constant("nothing in" as const), key: text, end: text }),
  fc.record({ kind: fc.constant("nothing since" as const), key: text, end: text, revision: revisions }),
  fc.record({ kind: fc.constant("value is" as const), key: text, value: text }),
);
const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({ kind: fc.constant("put" as const), key: text, value: text, leaseId: int64 }),
  fc.record({ kind: fc.constant("delete" as const), key }),
  range.map((given) => ({ kind: "range" as const, ...given })),
);
const few = { maxLength: 3 };
const txn: fc.Arbitrary<Txn> = fc.record({
  queues: fc.constant([]),
  compare: fc.array(compare, few),
  success: fc.array(operation, few),
  failure: fc.array(operation, few),
});
const watchRequest = fc
  .record({
    watchId: count,
    key,
    end: optional(text),
    startRevision: int64,
    events: fc.constantFrom("ALL" as const, "PUT" as const, "DELETE" as const),
  })
  .map((given) => defined(given) as WatchRequest);

/** `toStrictEqual` alone takes milliseconds for long keys. */
function expectEqual(actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) expect(actual).toStrictEqual(expected);
}

/** What etcd reads in the request is what it would read in etcd3's. */
function expectSame(method: Method, framed: Buffer, request: object): void {
  expect(framed.readUInt32BE(1)).toBe(framed.length - PREFIX);
  const judged = method.requestDeserialize(method.requestSerialize(request));
  expectEqual(method.requestDeserialize(framed.subarray(PREFIX)), judged);
  tally.add({ messages: 1 });
}

const check = <T>(arbitrary: fc.Arbitrary<T>, predicate: (value: T) => void): void =>
  fc.assert(
    fc.property(arbitrary, (value) => {
      tally.input();
      predicate(value);
    }),
    RUNS,
  );

describe("a request", () => {
  test(
    "is read by etcd as etcd3's: transactions",
    () => {
      check(fc.array(txn, { maxLength: 4 }), (txns) =>
        expectSame(TXN, requests.encodeTxns(txns), etcd3.txnsRequest(txns)),
      );
    },
    TIME_LIMIT_MS,
  );

  test(
    "is read by etcd as etcd3's: ranges and watches",
    () => {
      check(range, (given) => expectSame(RANGE, requests.encodeRange(given), etcd3.rangeRequest(given)));
      check(watchRequest, (given) =>
        expectSame(WATCH, requests.encodeWatchCreate(given), { create_request: etcd3.watchRequest(given) }),
      );
      check(count, (id) =>
        expectSame(WATCH, requests.encodeWatchCancel(id), { cancel_request: { watch_id: id.toString() } }),
      );
      expectSame(WATCH, requests.encodeWatchProgress(), { progress_request: {} });
    },
    TIME_LIMIT_MS,
  );

  test(
    "is read by etcd as etcd3's: leases and passwords",
    () => {
      check(fc.tuple(int64, count), ([id, ttl]) => {
        const ID = id.toString();
        expectSame(GRANT, requests.encodeGrant(id, ttl), { ID, TTL: ttl });
        expectSame(methodOf("Lease.LeaseRevoke"), requests.encodeRevoke(id), { ID });
        expectSame(TIME_TO_LIVE, requests.encodeTimeToLive(id), { ID, keys: true });
        expectSame(TIME_TO_LIVE, requests.encodeTimeToLive(id, { withoutKeys: true }), { ID, keys: false });
        expectSame(KEEPALIVE, requests.encodeKeepalive(id), { ID });
      });
      check(fc.tuple(text, text), ([name, password]) =>
        expectSame(AUTHENTICATE, requests.encodeAuthenticate(name, password), { name, password }),
      );
    },
    TIME_LIMIT_MS,
  );
});

const decimal = int64.map(String);
const unsigned = int64.map((value) => BigInt.asUintN(64, value).toString());
const header = fc.record({
  cluster_id: unsigned,
  member_id: unsigned,
  revision: decimal,
  raft_term: unsigned,
});
/** Missing once in a while: then both must throw. */
const mostly = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { freq: 15, nil: undefined });
const keyValue = fc.record({
  key: fc.oneof(
    bytes,
    text.map((value) => Buffer.from(value)),
  ),
  value: fc.oneof(
    bytes,
    text.map((value) => Buffer.from(value)),
  ),
  create_revision: decimal,
  mod_revision: decimal,
  version: decimal,
  lease: decimal,
});
const rangeResponse = fc.record({
  header: mostly(header),
  kvs: fc.array(keyValue, few),
  more: fc.boolean(),
  count: decimal,
});
const responseOf = (inner: fc.Arbitrary<object>) =>
  fc.oneof(
    rangeResponse.map((response_range) => ({ response_range })),
    header.map((given) => ({ response_put: { header: given } })),
    fc.constant({ response_delete_range: { deleted: "1" } }),
    fc.constant({}),
    inner,
  );
const txnResponse = (response: fc.Arbitrary<object>) =>
  fc.record({ header: mostly(header), succeeded: fc.boolean(), responses: fc.array(response, few) });
const innerTxn = txnResponse(responseOf(fc.constant({}))).map((response_txn) => ({ response_txn }));
const event = fc.record({
  type: fc.constantFrom("Put", "Delete"),
  kv: mostly(keyValue),
  prev_kv: mostly(keyValue),
});
const watchResponse = fc.record({
  header: mostly(header),
  watch_id: decimal,
  created: fc.boolean(),
  canceled: fc.boolean(),
  compact_revision: decimal,
  cancel_reason: text,
  fragment: fc.boolean(),
  events: fc.array(event, few),
});
const leaseResponse = fc.record({
  header: mostly(header),
  ID: decimal,
  TTL: decimal,
  grantedTTL: decimal,
  keys: fc.array(bytes, few),
  error: fc.constantFrom("", "no"),
});

const outcome = (run: () => unknown): unknown => {
  try {
    return run();
  } catch {
    return "throws";
  }
};

/** Random numbers from one seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

interface Reading {
  readonly method: Method;
  readonly shape: Shape;
  readonly response: fc.Arbitrary<object>;
  readonly decode: (body: Buffer) => unknown;
  readonly judge: (raw: never) => unknown;
}

const READINGS: Readonly<Record<string, Reading>> = {
  "a transaction": {
    method: TXN,
    shape: SHAPES.txn,
    response: txnResponse(responseOf(innerTxn)),
    decode: (body) => answers.decodeTxns(body, 1),
    judge: (raw) => etcd3.txnsAnswer(raw, 1),
  },
  "two transactions": {
    method: TXN,
    shape: SHAPES.txn,
    response: fc.record({
      header: mostly(header),
      responses: fc.array(fc.oneof({ weight: 9, arbitrary: innerTxn }, responseOf(innerTxn)), {
        minLength: 1,
        maxLength: 3,
      }),
    }),
    decode: (body) => answers.decodeTxns(body, 2),
    judge: (raw) => etcd3.txnsAnswer(raw, 2),
  },
  "a range": {
    method: RANGE,
    shape: SHAPES.range,
    response: rangeResponse,
    decode: answers.decodeRange,
    judge: etcd3.rangeAnswer,
  },
  "a watch": {
    method: WATCH,
    shape: SHAPES.watch,
    response: watchResponse,
    decode: answers.decodeWatch,
    judge: etcd3.watchAnswer,
  },
  "a grant": {
    method: GRANT,
    shape: SHAPES.lease,
    response: leaseResponse,
    decode: answers.decodeLease,
    judge: etcd3.leaseAnswer,
  },
  "a keepalive": {
    method: KEEPALIVE,
    shape: SHAPES.lease,
    response: leaseResponse,
    decode: answers.decodeLease,
    judge: etcd3.leaseAnswer,
  },
  "a time to live": {
    method: TIME_TO_LIVE,
    shape: SHAPES.lease,
    response: leaseResponse,
    decode: answers.decodeTimeToLive,
    judge: (raw: { readonly keys: readonly Buffer[] }) => ({
      ...etcd3.leaseAnswer(raw as never),
      keys: raw.keys,
    }),
  },
  "a token": {
    method: AUTHENTICATE,
    shape: SHAPES.lease,
    response: fc.record({ header: mostly(header), token: text }),
    decode: answers.decodeToken,
    judge: ({ token }: { readonly token: string }) => token,
  },
};

describe.each(Object.entries(READINGS))(
  "the answer to %s",
  (_, { method, shape, response, decode, judge }) => {
    const encoded = fc
      .tuple(response, fc.nat())
      .map(([given, seed]) => scramble(method.responseSerialize(given), shape, randomOf(seed)));

    test(
      "is what etcd3 reads in it, in whatever order its fields come",
      () => {
        check(encoded, (body) => {
          const judged = outcome(() => judge(method.responseDeserialize(body) as never));
          expectEqual(
            outcome(() => decode(body)),
            judged,
          );
          tally.add({ messages: 1 });
        });
      },
      TIME_LIMIT_MS,
    );

    test(
      "throws nothing but errors when bytes of it are changed, lost or added",
      () => {
        const changes = fc.array(fc.tuple(fc.nat(), fc.nat(2), fc.nat(255)), { minLength: 1, maxLength: 5 });
        check(fc.tuple(encoded, changes), ([body, changed]) => {
          tally.add({ broken: 1 });
          const broken = changed.reduce(mutated, body);
          try {
            decode(broken);
          } catch (error) {
            expect(error).toBeInstanceOf(Error);
            expect(error).not.toBeInstanceOf(TypeError);
            expect(error).not.toBeInstanceOf(RangeError);
          }
        });
      },
      TIME_LIMIT_MS,
    );
  },
);

function mutated(body: Buffer, [where, how, byte]: [number, number, number]): Buffer {
  const at = where % (body.length + 1);
  const rest = body.subarray(how === 0 ? at : at + 1);
  return Buffer.concat([body.subarray(0, at), how === 2 ? Buffer.alloc(0) : Buffer.from([byte]), rest]);
}
