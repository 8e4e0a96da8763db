import { type Field, fieldOf, fieldsOf, message } from "../clients/protobuf.js";
import type { Answer } from "./raw-server.js";

/** Changes an honest answer in transit. None of these lies forges a proof that a lock is free. */
export type Lie = (honest: Answer) => Answer;
type Lies = Readonly<Record<string, Lie>>;

const rewritten =
  (rewrite: (fields: Field[]) => Field[]): Lie =>
  (honest) => ({
    ...honest,
    messages: (honest.messages ?? []).map((bytes) => message(rewrite(fieldsOf(bytes)))),
  });
const without = (number: number) => rewritten((fields) => fields.filter(([each]) => each !== number));
/** Replaces the fields with the same numbers. */
const having = (...added: readonly Field[]) => {
  const numbers = new Set(added.map(([number]) => number));
  return rewritten((fields) => [...fields.filter(([each]) => !numbers.has(each)), ...added]);
};
/** Another value in the header, whose fields are cluster, member, revision, term. */
const headed = (number: 2 | 3 | 4, value: bigint) =>
  rewritten((fields) => {
    const header = fieldsOf(fieldOf(message(fields), 1) as Buffer).filter(([each]) => each !== number);
    return [[1, [...header, [number, value]]], ...fields.filter(([each]) => each !== 1)];
  });
const instead =
  (answer: Answer): Lie =>
  () =>
    answer;
const bytes = (hex: string) => instead({ messages: [Buffer.from(hex, "hex")] });
const event = (type: number, ...kv: Field[]): Field => [
  11,
  [
    [1, type],
    [2, kv],
  ],
];

/** For any call and any stream. */
const BROKEN: Lies = {
  "nothing at all": instead({ how: "silence" }),
  "an empty message": bytes(""),
  "no header": without(1),
  "another member's header": headed(2, 8n),
  "the header of a term long ago": headed(4, 1n),
  "the header of a term to come": headed(4, 2n ** 60n),
  "bytes that are no protobuf": bytes("ffffffffffffffffffff01"),
  "fields of the wrong types": bytes("0a020801100118011a0d6e6f2068656164657220686572"),
  "half of the message": (honest) => ({
    ...honest,
    messages: (honest.messages ?? []).map((each) => each.subarray(0, each.length >> 1)),
  }),
  "the message twice": ({ messages = [], ...honest }) => ({
    ...honest,
    messages: [...messages, ...messages],
  }),
  "a frame that says it is compressed": instead({ frames: Buffer.from("0100000003010203", "hex") }),
  "a frame that never ends": instead({ frames: Buffer.from("00000fffff0102", "hex"), status: 0 }),
  "a stream that is reset": instead({ how: "reset" }),
  "a connection that is cut": instead({ how: "hang up" }),
  "an end without status": instead({ how: "no trailers", status: 0 }),
  "an end with status 0 and no message": instead({ status: 0 }),
  "an unknown status": instead({ status: 99, details: "who knows" }),
  "a status that is no number": instead({ status: "never", details: "%zz" }),
  "status UNAVAILABLE": instead({ status: 14, details: "etcdserver: leader changed" }),
  "a web page": instead({
    headers: { ":status": 502, "content-type": "text/html" },
    frames: Buffer.from("<html>502</html>"),
    status: 0,
  }),
};

/** For everything except transactions: the client could not know that these were applied. */
const ODD: Lies = {
  "an empty header": having([1, []]),
  "status UNIMPLEMENTED": instead({ status: 12 }),
};

/** For reads, watches and renewals; the revision in a transaction's answer cannot be verified. */
const FALSE_REVISIONS: Lies = {
  "a revision of long ago": headed(3, 1n),
  "revision 0": headed(3, 0n),
  "a negative revision": headed(3, -5n),
};

const FALSE_READS: Lies = {
  "no place, and more to come": having([3, true], [4, 5]),
  "a negative count": having([4, -3]),
  "a huge count": having([4, 2n ** 62n]),
};

/** For grants and renewals. */
const FALSE_LEASES: Lies = {
  "TTL 0": having([3, 0]),
  "a negative TTL": having([3, -7]),
  "a huge TTL": having([3, 2n ** 62n]),
  "another lease": having([2, 4711n]),
  "an error beside the grant": having([4, "no more leases"]),
};

const FALSE_WATCHES: Lies = {
  "an event for another watch": having([2, 4711n], [3, 0], event(1, [1, "x/1"], [3, 10 ** 9])),
  "an event of long ago": having([3, 0], event(1, [1, "x/1"], [3, 1])),
  "an event without a key": having([3, 0], [11, [[1, 1]]]),
  "an event of another key": having([3, 0], event(1, [1, "nobody/1"], [3, 10 ** 9])),
  "a put on a watch for deletes": having([3, 0], event(0, [1, "x/1"], [3, 10 ** 9])),
  "an event of an unknown kind": having([3, 0], event(7, [1, "x/1"], [3, 10 ** 9])),
  "a watch that nobody asked for": having([2, 4712n], [3, true]),
  "a cancellation for no reason": having([3, 0], [4, true]),
  "a compaction of the future": having([4, true], [5, 2n ** 60n]),
  "a refused watch": having([2, -1], [3, true], [4, true], [6, "no watch for you"]),
  "a negative watch ID": having([2, -(2n ** 60n)]),
};

/** By the call whose answers are falsified. */
export const LIES: Readonly<Record<string, Lies>> = {
  LeaseGrant: { ...BROKEN, ...ODD, ...FALSE_REVISIONS, ...FALSE_LEASES },
  LeaseKeepAlive: { ...BROKEN, ...ODD, ...FALSE_REVISIONS, ...FALSE_LEASES },
  LeaseRevoke: { ...BROKEN, ...ODD },
  LeaseTimeToLive: { ...BROKEN, ...ODD },
  Txn: BROKEN,
  Range: { ...BROKEN, ...ODD, ...FALSE_REVISIONS, ...FALSE_READS },
  Watch: { ...BROKEN, ...ODD, ...FALSE_REVISIONS, ...FALSE_WATCHES },
};
