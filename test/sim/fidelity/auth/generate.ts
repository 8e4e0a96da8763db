import type { Compare, Operation, Range, Txn } from "../../../../src/etcd/port.js";
import { Random } from "../../../../src/testing/memory/random.js";
import { CLIENTS } from "./play.js";
import type { Ask, Edit, Program, Step } from "./steps.js";

const KEYS = ["a/1", "a/2", "b/1", "b/2", "s/1"] as const;
const LEASES = [11n, 11n, 12n, 13n] as const;
/** An end of "\0": everything from the key on. */
const RANGES: readonly (readonly [key: string, end: string])[] = [
  ["a/", "a0"],
  ["a/", "a0"],
  ["b/", "b0"],
  ["a/", "\0"],
  ["a/", "b0"],
  ["a0", "b0"],
  ["a/1", ""],
  ["b/1", ""],
  ["a/", "\0"],
  ["\0", "\0"],
  ["s/", "\0"],
];
const USERS = ["alice", "bob", "carol"] as const;

export interface GenerateOptions {
  readonly seed: string;
  readonly steps: number;
  /** Tokens expire in so many places, which takes time. */
  readonly expiries: number;
  /** So long no token is used: three times it is more than a token lives, and it is less than a token lives. */
  readonly idleMs: number;
}

/** The same seed gives the same program. */
export function generate({ seed, steps, expiries, idleMs }: GenerateOptions): Program {
  const random = new Random(seed);
  const program = [...setUp()];
  const places = new Set(
    Array.from({ length: expiries }, (_, n) => Math.floor(((n + 1) * steps) / (expiries + 1))),
  );
  for (let n = 0; program.length < steps; n = program.length) {
    const place = [...places].find((each) => each <= n);
    if (place !== undefined && places.delete(place)) program.push(...drawExpiry(random, idleMs));
    program.push(...drawSteps(random));
  }
  return program;
}

const edit = (edit: Edit): Step => ({ kind: "edit", edit });
const login = (client: number, user: string): Step => ({ kind: "login", client, user, password: user });

const grant = (
  role: string,
  type: "read" | "write" | "readwrite",
  [key, end]: (typeof RANGES)[number],
): Step => edit({ edit: "grant permission", role, type, key, end });

function setUp(): Step[] {
  const users = ["root", ...USERS];
  return [
    ...USERS.map((role) => edit({ edit: "add role", role })),
    ...users.map((user) => edit({ edit: "add user", user, password: user })),
    ...users.map((user) => edit({ edit: "grant role", user, role: user })),
    grant("alice", "readwrite", ["a/", "a0"]),
    grant("alice", "read", ["s/1", ""]),
    grant("bob", "readwrite", ["b/", "b0"]),
    grant("bob", "read", ["a/", "a0"]),
    grant("carol", "write", ["b/", "\0"]),
    edit({ edit: "enable" }),
    ...loginAll(),
  ];
}

/** The last client has no token. */
const loginAll = (): Step[] => ["root", "alice", "alice", "bob", "carol"].map((user, n) => login(n, user));

/** Some clients use their tokens meanwhile, each in one way; the tokens of the others expire. */
function drawExpiry(random: Random, ms: number): Step[] {
  const asks = Array.from({ length: CLIENTS - 1 }, () => (random.chance(0.7) ? drawUse(random) : undefined));
  const uses = (): Step[] =>
    asks.flatMap((ask, client) => (ask ? [{ kind: "ask" as const, client, ask }] : []));
  const idle: Step = { kind: "elapse", ms };
  const look = (client: number): Step => ({
    kind: "ask",
    client,
    ask: { kind: "range", range: { key: "a/1" } },
  });
  const all = asks.map((_, client) => look(client));
  return [...uses(), idle, ...uses(), idle, ...uses(), idle, ...all, ...loginAll()];
}

const drawUse = (random: Random): Ask =>
  random.pick<Ask>([
    { kind: "range", range: { key: "b/1" } },
    { kind: "renew", leaseId: 99n },
    { kind: "watch", key: "a/1" },
    { kind: "timeToLive", leaseId: 99n, withoutKeys: true },
    { kind: "timeToLive", leaseId: 99n, withoutKeys: false },
    { kind: "revoke", leaseId: 99n },
  ]);

function drawSteps(random: Random): Step[] {
  const draw = random.next();
  if (draw < 0.8) return [drawAsk(random)];
  if (draw < 0.88) return [drawLogin(random)];
  if (draw < 0.92) return [edit(drawEdit(random))];
  if (draw < 0.95) return [{ kind: "reopen", client: random.int(CLIENTS) }];
  if (draw < 0.96) return [{ kind: random.pick(["forge", "logout"] as const), client: random.int(CLIENTS) }];
  if (draw < 0.975)
    return inBlock(random, edit({ edit: "alarm", on: true }), [edit({ edit: "alarm", on: false })]);
  if (draw < 0.98) return drawStale(random);
  if (draw < 0.987)
    return inBlock(random, edit({ edit: "disable" }), [edit({ edit: "enable" }), ...loginAll()]);
  return drawUserChange(random);
}

const inBlock = (random: Random, first: Step, last: readonly Step[]): Step[] => [
  first,
  ...Array.from({ length: 8 }, () => drawAsk(random)),
  ...last,
];

/** A lease with keys, and an edit that makes JSON web tokens stale. */
function drawStale(random: Random): Step[] {
  const leaseId = random.pick(LEASES);
  const put: Operation = { kind: "put", key: random.pick(KEYS), value: "w", leaseId };
  const ask = (client: number, ask: Ask): Step => ({ kind: "ask", client, ask });
  const asks: readonly Ask[] = [
    { kind: "timeToLive", leaseId, withoutKeys: false },
    { kind: "renew", leaseId },
    { kind: "watch", key: "a/1" },
    { kind: "grant", leaseId },
    { kind: "revoke", leaseId },
  ];
  return [
    login(0, "root"),
    ask(0, { kind: "grant", leaseId }),
    ask(0, { kind: "txns", txns: [{ queues: [], compare: [], success: [put], failure: [] }] }),
    edit({ edit: "grant permission", role: "bob", type: "read", key: "s/", end: "s0" }),
    ...asks.flatMap((each) => [ask(1, each), ask(0, each)]),
  ];
}

function drawUserChange(random: Random): Step[] {
  const user = random.pick(USERS);
  const asks = Array.from({ length: 4 }, () => drawAsk(random));
  if (random.chance(0.5))
    return [edit({ edit: "change password", user, password: user }), ...asks, ...loginAll()];
  return [
    edit({ edit: "delete user", user }),
    ...asks,
    edit({ edit: "add user", user, password: user }),
    edit({ edit: "grant role", user, role: user }),
    ...loginAll(),
  ];
}

function drawLogin(random: Random): Step {
  const client = random.int(CLIENTS - 1);
  const user = random.pick(["root", "alice", "bob", "carol", "alice", "bob", "nobody"]);
  return { kind: "login", client, user, password: random.chance(0.9) ? user : "wrong" };
}

function drawEdit(random: Random): Edit {
  const [user, role] = [random.pick([...USERS, "dave"]), random.pick([...USERS, "guests"])];
  const [key, end] = random.pick(RANGES);
  const type = random.pick(["read", "write", "readwrite"] as const);
  return random.pick<Edit>([
    { edit: "grant permission", role, type, key, end },
    { edit: "grant permission", role, type, key, end },
    { edit: "revoke permission", role, key, end },
    { edit: "add role", role },
    { edit: "grant role", user, role },
    { edit: "revoke role", user, role },
    { edit: "add user", user, password: user },
    { edit: "delete user", user: random.pick(["root", "dave"]) },
    { edit: "delete role", role: random.pick(["guests", "guests", "root"]) },
  ]);
}

function drawAsk(random: Random): Step {
  const client = random.int(CLIENTS);
  const leaseId = random.pick(LEASES);
  const draw = random.next();
  const ask = (ask: Ask): Step => ({ kind: "ask", client, ask });
  if (draw < 0.4) return ask({ kind: "txns", txns: drawTxns(random) });
  if (draw < 0.55) return ask({ kind: "range", range: drawRange(random) });
  if (draw < 0.67) return ask({ kind: "grant", leaseId });
  if (draw < 0.73) return ask({ kind: "revoke", leaseId });
  if (draw < 0.8) return ask({ kind: "timeToLive", leaseId, withoutKeys: random.chance(0.4) });
  if (draw < 0.89) return ask({ kind: "renew", leaseId });
  if (draw < 0.98) return ask({ kind: "watch", ...drawRangeOnly(random) });
  return ask({ kind: "compact", revision: BigInt(random.int(20)) });
}

function drawRangeOnly(random: Random): { key: string; end?: string } {
  if (random.chance(0.5)) return { key: random.pick(KEYS) };
  const [key, end] = random.pick(RANGES);
  return end === "" ? { key } : { key, end };
}

const drawRange = (random: Random): Range => ({
  ...drawRangeOnly(random),
  ...(random.chance(0.2) && { serializable: true }),
});

/** Each key is in one transaction only. */
function drawTxns(random: Random): Txn[] {
  const keys: string[] = [...KEYS];
  return Array.from({ length: random.pick([1, 1, 1, 1, 2, 3]) }, () => drawTxn(random, keys));
}

function drawTxn(random: Random, keys: string[]): Txn {
  const compare: Compare[] = [];
  if (random.chance(0.3)) compare.push({ kind: "created at", key: random.pick(KEYS), revision: 0n });
  if (random.chance(0.1)) compare.push({ kind: "nothing in", key: "a/", end: "b0" });
  const success = drawOperations(random, keys);
  return { queues: [], compare, success, failure: random.chance(0.3) ? drawOperations(random, keys) : [] };
}

function drawOperations(random: Random, keys: string[]): Operation[] {
  const operations: Operation[] = [];
  for (let n = random.int(3); n > 0 && keys.length > 0; n--) {
    const [key] = keys.splice(random.int(keys.length), 1);
    const leaseId = random.chance(0.5) ? random.pick(LEASES) : 0n;
    const put: Operation = { kind: "put", key: key!, value: "v", leaseId };
    operations.push(
      random.pick<Operation>([
        put,
        put,
        { kind: "delete", key: key! },
        { kind: "range", ...drawRangeOnly(random) },
      ]),
    );
  }
  return operations;
}
