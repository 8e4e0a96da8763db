// Small histories of each model, legal and illegal ones: the judge must distinguish them.
import type { ObjectKind, Operation } from "./operation.js";

export interface HandMade {
  readonly title: string;
  readonly legal: boolean;
  readonly operations: readonly Operation[];
}

type Part = Omit<Operation, "object" | "name">;
type Times = readonly [from: number, to?: number];

const during = ([from, to]: Times) => ({ from, ...(to !== undefined && { to }) });
const acquire = (fence: number, times: Times, more: Partial<Part> = {}): Part => ({
  ...{ op: "acquire", client: `w${fence}`, fence, placed: true, ...during(times), ...more },
});
const read = (value: number, times: Times): Part => ({ op: "read", client: "w", value, ...during(times) });
const write = (value: number, fence: number, times: Times, accepted?: boolean): Part => ({
  ...{ op: "write", client: `w${fence}`, fence, value, ...during(times) },
  ...(accepted !== undefined && { accepted }),
});
const at = (op: Operation["op"], fence: number, t: number): Part => ({
  ...{ op, client: op === "end" ? "etcd" : `w${fence}`, fence, from: t, to: t },
});
const end = (fence: number, t: number): Part => at("end", fence, t);
const claim = (fence: number, t: number): Part => at("claim", fence, t);

const shared = { shared: true };
const oneOfTwo = { shared: true, permits: 2 };
const [LEGAL, ILLEGAL] = [true, false];

type Case = readonly [title: string, legal: boolean, operations: readonly Part[]];

const MUTEX: readonly Case[] = [
  ["two holders in turn", LEGAL, [acquire(1, [0, 10]), end(1, 20), acquire(2, [5, 21]), end(2, 30)]],
  [
    "an answer that arrives after the end of its hold",
    LEGAL,
    [acquire(1, [0, 90]), end(1, 20), acquire(2, [5, 30])],
  ],
  ["a claim at the last moment", LEGAL, [acquire(1, [0, 10]), claim(1, 20), end(1, 20), acquire(2, [5, 20])]],
  ["two holders at a time", ILLEGAL, [acquire(1, [0, 10]), acquire(2, [5, 19]), end(1, 20), end(2, 30)]],
  [
    "a second holder while the place of the first remains",
    ILLEGAL,
    [acquire(1, [0, 10]), acquire(2, [20, 30])],
  ],
  ["a fence that falls", ILLEGAL, [acquire(2, [0, 10]), end(2, 20), acquire(1, [5, 30])]],
  ["a fence that is given twice", ILLEGAL, [acquire(1, [0, 10]), end(1, 20), acquire(1, [5, 30])]],
  ["a claim after the end", ILLEGAL, [acquire(1, [0, 10]), end(1, 20), claim(1, 21)]],
  ["a loss that did not happen", ILLEGAL, [acquire(1, [0, 10]), at("gone", 1, 15), end(1, 20)]],
  ["a grant without a place in etcd", ILLEGAL, [acquire(1, [0, 10], { placed: false })]],
];

const RWLOCK: readonly Case[] = [
  [
    "two readers, then a writer",
    LEGAL,
    [
      ...[acquire(1, [0, 10], shared), acquire(2, [0, 10], shared), claim(1, 11), claim(2, 11)],
      ...[end(2, 20), end(1, 30), acquire(3, [0, 31])],
    ],
  ],
  ["a writer beside a reader", ILLEGAL, [acquire(1, [0, 10], shared), acquire(2, [0, 19]), end(1, 20)]],
  ["a reader beside a writer", ILLEGAL, [acquire(1, [0, 10]), acquire(2, [0, 19], shared), end(1, 20)]],
  ["a writer's fence that falls", ILLEGAL, [acquire(5, [0, 10]), end(5, 20), acquire(4, [0, 30])]],
];

const SEMAPHORE: readonly Case[] = [
  [
    "two of two permits, and a third one later",
    LEGAL,
    [
      ...[
        acquire(1, [0, 10], oneOfTwo),
        acquire(2, [0, 10], oneOfTwo),
        end(1, 20),
        acquire(3, [0, 21], oneOfTwo),
      ],
    ],
  ],
  ["three of two permits", ILLEGAL, [1, 2, 3].map((fence) => acquire(fence, [0, 10], oneOfTwo))],
  ["a claim to a permit after its end", ILLEGAL, [acquire(1, [0, 10], oneOfTwo), end(1, 20), claim(1, 21)]],
];

const weighs = (weight: number): Partial<Part> => ({ shared: true, weight });
const rule = (permits: number, t: number): Part => ({
  ...{ op: "rule", client: "etcd", permits, from: t, to: t },
});
const ended = (fence: number, weight: number, t: number): Part => ({ ...end(fence, t), weight });
const WEIGHTED: readonly Case[] = [
  [
    "one with three of four permits and one with one, and later one with all",
    LEGAL,
    [
      ...[rule(4, 0), acquire(1, [0, 10], weighs(3)), acquire(2, [0, 10], weighs(1))],
      ...[claim(1, 11), claim(2, 11), ended(2, 1, 20), ended(1, 3, 30), acquire(3, [5, 31], weighs(4))],
    ],
  ],
  [
    "a smaller number that takes nothing from those that hold",
    LEGAL,
    [
      ...[rule(6, 0), acquire(1, [0, 10], weighs(3)), acquire(2, [0, 10], weighs(3)), rule(4, 20)],
      ...[claim(1, 21), claim(2, 21), ended(1, 3, 30), acquire(3, [22, 40], weighs(1))],
    ],
  ],
  [
    "a larger number that begins to rule during a call",
    LEGAL,
    [
      ...[rule(4, 0), acquire(1, [0, 10], weighs(4)), acquire(2, [5, 30], weighs(2)), rule(6, 20)],
      ...[claim(1, 40), claim(2, 40)],
    ],
  ],
  [
    "two that together take more than there are",
    ILLEGAL,
    [rule(4, 0), acquire(1, [0, 10], weighs(3)), acquire(2, [0, 10], weighs(2))],
  ],
  [
    "a heavy one after the end of one of two",
    ILLEGAL,
    [
      ...[rule(4, 0), acquire(1, [0, 10], weighs(1)), acquire(2, [0, 10], weighs(2)), ended(1, 1, 20)],
      ...[acquire(3, [5, 30], weighs(3)), ended(2, 2, 40)],
    ],
  ],
  [
    "one that goes by a number that rules no more",
    ILLEGAL,
    [rule(6, 0), acquire(1, [0, 10], weighs(3)), rule(4, 20), acquire(2, [21, 30], weighs(2))],
  ],
  [
    "one that goes by a number that doesn't rule yet",
    ILLEGAL,
    [rule(4, 0), acquire(1, [0, 10], weighs(4)), acquire(2, [11, 19], weighs(2)), rule(6, 20)],
  ],
  [
    "a claim after the end",
    ILLEGAL,
    [rule(4, 0), acquire(1, [0, 10], weighs(2)), ended(1, 2, 20), claim(1, 21)],
  ],
];

const REGISTER: readonly Case[] = [
  [
    "writes of two holders",
    LEGAL,
    [
      ...[read(0, [0, 5]), write(1, 1, [5, 10], true), end(1, 20), write(5, 1, [21, 22], false)],
      ...[read(1, [23, 25]), write(2, 2, [25, 30], true), read(2, [31, 32])],
    ],
  ],
  ["an unknown write that is read", LEGAL, [write(1, 1, [0]), read(0, [1, 2]), read(1, [3, 4])]],
  ["an unknown write that is never read", LEGAL, [write(1, 1, [0]), read(0, [1, 2]), read(0, [3, 4])]],
  [
    "an unknown write that is read and then undone",
    ILLEGAL,
    [...[write(1, 1, [0]), read(0, [1, 2]), read(1, [3, 4]), read(0, [5, 6])]],
  ],
  ["an unknown write after the end of its hold", ILLEGAL, [end(1, 5), write(1, 1, [6]), read(1, [7, 8])]],
  ["a lower fence that is accepted", ILLEGAL, [write(1, 2, [0, 10], true), write(2, 1, [11, 20], true)]],
  ["a write after the end of its hold", ILLEGAL, [end(1, 5), write(1, 1, [6, 10], true)]],
  ["a current fence that is refused", ILLEGAL, [write(1, 1, [0, 10], false), end(1, 20)]],
  ["an accepted write that is not read", ILLEGAL, [write(1, 1, [0, 10], true), read(0, [11, 20])]],
];

const result = (op: "keep" | "replay" | "expire", value: number, times: Times): Part => ({
  ...{ op, client: op === "expire" ? "etcd" : `w${value}`, value, ...during(times) },
});
const RESULT: readonly Case[] = [
  [
    "a result that is replayed until it expires, and then another one",
    LEGAL,
    [
      ...[result("keep", 1, [0, 20]), result("replay", 1, [5, 30]), result("expire", 1, [40, 40])],
      ...[result("keep", 2, [35, 50]), result("replay", 2, [36, 60])],
    ],
  ],
  [
    "a result that its own caller was never told",
    LEGAL,
    [result("keep", 1, [0]), result("replay", 1, [5, 30])],
  ],
  ["two results of one slot", ILLEGAL, [result("keep", 1, [0, 20]), result("keep", 2, [5, 30])]],
  [
    "a replay of what has expired",
    ILLEGAL,
    [result("keep", 1, [0, 20]), result("expire", 1, [30, 30]), result("replay", 1, [31, 40])],
  ],
  ["a replay before there is a result", ILLEGAL, [result("replay", 1, [0, 5]), result("keep", 1, [6, 20])]],
  ["a replay of another result", ILLEGAL, [result("keep", 1, [0, 20]), result("replay", 2, [21, 30])]],
];

const counts = (t: Times, item?: string): Part => ({
  ...{ op: "countDown", client: "w", number: 2, ...(item !== undefined && { item }), ...during(t) },
});
const meets = (op: Operation["op"], t: Times, value?: number): Part => ({
  ...{ op, client: "w", number: 2, ...(value !== undefined && { value }), ...during(t) },
});
const LATCH: readonly Case[] = [
  [
    "two counts, one who waits, a reset",
    LEGAL,
    [
      ...[meets("wait", [0, 40]), counts([5, 10]), meets("count", [11, 12], 1), counts([20, 30])],
      ...[counts([41, 42]), meets("wait", [43, 44]), meets("reset", [50, 60]), meets("count", [61, 62], 2)],
    ],
  ],
  [
    "a count of unknown outcome that has opened it",
    LEGAL,
    [counts([0, 5]), counts([6]), meets("wait", [10, 20])],
  ],
  [
    "an ID that is counted twice",
    LEGAL,
    [counts([0, 5], "a"), counts([6, 9], "a"), meets("count", [10, 11], 1)],
  ],
  ["a wait that ends with one missing", ILLEGAL, [counts([0, 5]), meets("wait", [1, 9]), counts([10, 20])]],
  ["one count that counts twice", ILLEGAL, [counts([0, 5]), meets("count", [6, 9], 0)]],
  [
    "a wait that ends after a reset",
    ILLEGAL,
    [counts([0, 5]), counts([0, 5]), meets("reset", [6, 9]), meets("wait", [10, 20])],
  ],
];
const BARRIER: readonly Case[] = [
  [
    "a hold, one that comes too late, a release",
    LEGAL,
    [meets("hold", [0, 5], 1), meets("hold", [1, 9], 0), meets("pass", [3, 30]), meets("release", [10, 20])],
  ],
  [
    "a holder that dies, until a release",
    LEGAL,
    [
      meets("hold", [0, 5], 1),
      meets("die", [6, 6]),
      meets("refused", [7, 8]),
      meets("release", [9, 10]),
      meets("pass", [9, 20]),
    ],
  ],
  [
    "a wait that ends while it is held",
    ILLEGAL,
    [meets("hold", [0, 5], 1), meets("pass", [6, 9]), meets("release", [10, 20])],
  ],
  ["two that have closed it", ILLEGAL, [meets("hold", [0, 5], 1), meets("hold", [1, 9], 1)]],
  [
    "a hold that closes it again",
    ILLEGAL,
    [meets("hold", [0, 5], 1), meets("release", [6, 7]), meets("hold", [8, 9], 0)],
  ],
];

const casesOf = (object: ObjectKind, cases: readonly Case[]): HandMade[] =>
  cases.map(([title, legal, parts]) => ({
    ...{ title: `${object}: ${title}`, legal },
    operations: parts.map((part) => ({ object, name: "n1", ...part })),
  }));

export const HAND_MADE: readonly HandMade[] = [
  ...casesOf("mutex", MUTEX),
  ...casesOf("rwlock", RWLOCK),
  ...casesOf("semaphore", SEMAPHORE),
  ...casesOf("weighted", WEIGHTED),
  ...casesOf("register", REGISTER),
  ...casesOf("result", RESULT),
  ...casesOf("latch", LATCH),
  ...casesOf("barrier", BARRIER),
];
