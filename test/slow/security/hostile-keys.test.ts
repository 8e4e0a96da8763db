// A right to write below one name must not be a right to stop the processes that wait there: whatever a client puts, no call and
// no page works on it for longer than a small multiple of what a harmless text of the same length costs.
import { describe, expect, test } from "vitest";
import { Board } from "../../../src/observe/board.js";
import {
  ClusterLockManager,
  Election,
  inspect,
  isLeaseholdError,
  list,
  lockAll,
  Mutex,
  once,
  RwLock,
  Semaphore,
  watchQueue,
} from "../../../src/index.js";
import { encode, endOf } from "../../support/clients/gateway-text.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(60);
/** A quadratic parser needs seconds for it. etcd takes requests of 1.5 MiB. */
const LENGTH = 200_000;
const filled = (unit: string, end = ""): string =>
  unit.repeat(Math.floor((LENGTH - end.length) / Buffer.byteLength(unit))) + end;
/** What a call may cost beside a harmless text; a quadratic parser costs thousands of times as much. */
const MOST_TIMES = 20;
/** Of CPU: a garbage collection counts, too, and a quadratic parser needs seconds. */
const LEAST_MS = 500;

/** Put below the name without a lease, and as the name of an entry of a lease. */
const KEYS: Readonly<Record<string, string>> = {
  marks: filled("/leasehold/once/"),
  "marks that end as one": filled("/leasehold/once/", "//0000000000000007"),
  "double slashes": filled("//leasehold/once/", "//-000000000000000x"),
  slashes: filled("/"),
  folders: filled("/read/write"),
  hyphens: filled("-"),
  digits: filled("7"),
  "unsafe characters": filled("\u202e"),
};
const VALUES: Readonly<Record<string, string>> = {
  brackets: filled("["),
  "an owner": `{"owner":"${filled("\u202e")}","since":"","id":""}`,
  escapes: `{"owner":"${filled("\\u202e")}","since":"","id":""}`,
  names: `{${filled(`"owner":"",`)}"id":""}`,
};
const HARMLESS = filled("x");

/** Ends by itself, or when it's aborted. */
type Call = (name: string, signal: AbortSignal) => Promise<unknown>;
const wait = (signal: AbortSignal) => ({ signal, timeoutMs: 200 });
const webLocks = (name: string) => new ClusterLockManager(two.cluster, { prefix: name });

/** Until the page's board has read everything. */
async function readPage(name: string): Promise<void> {
  let board: Board | undefined;
  await new Promise<void>((resolve, reject) => {
    board = Board.open(two.cluster, name, { changed: () => resolve(), failed: reject });
  }).finally(() => board?.stop());
}

const CALLS: Readonly<Record<string, Call>> = {
  lock: (name, signal) => new Mutex(two.cluster, name).lock(wait(signal)),
  tryLock: (name) => new Mutex(two.cluster, name).tryLock(),
  readLock: (name, signal) => new RwLock(two.cluster, name).readLock(wait(signal)),
  acquire: (name, signal) => new Semaphore(two.cluster, name, 2).acquire(wait(signal)),
  lockAll: (name, signal) => lockAll(two.cluster, [name, `${name}-2`], wait(signal)),
  campaign: (name, signal) => new Election(two.cluster, name).campaign("me", wait(signal)),
  leader: (name) => new Election(two.cluster, name).leader(),
  once: (name, signal) => once(two.cluster, name, 1, () => undefined, wait(signal)),
  "a web lock": (name, signal) => webLocks(name).request("x", { signal }, () => undefined),
  "a web lock's query": (name) => webLocks(name).query(),
  inspect: (name) => inspect(two.cluster, name),
  list: (name) => list(two.cluster, name),
  watchQueue: (name, signal) => watchQueue(two.cluster, name, { signal }).next(),
  "the page": readPage,
};

let names = 0;

/** A key below the name, the lease that it's on, and its value. */
interface Put {
  readonly below: string;
  readonly leaseId?: bigint;
  readonly value?: string;
}

/** Milliseconds of CPU that this process needs for the call beside that key. */
async function cost(call: Call, { below, ...put }: Put): Promise<number> {
  const name = `victim/${names++}`;
  await putKeys(two.etcd.member, [`${name}/${below}`], { ...put, atOnce: 1 });
  const abort = new AbortController();
  const before = process.cpuUsage();
  const limit = setTimeout(() => abort.abort(), 400);
  const end = await call(name, abort.signal).catch((error: Error) => error);
  clearTimeout(limit);
  const { user, system } = process.cpuUsage(before);
  if (end instanceof Error && !isLeaseholdError(end) && end !== abort.signal.reason) throw end;
  await (end as { release?: () => Promise<void> } | undefined)?.release?.().catch(() => undefined);
  await two.etcd.member.gateway("/v3/kv/deleterange", { key: encode(name), range_end: encode(endOf(name)) });
  return (user + system) / 1000;
}

/** Those that cost more than a harmless text of the same length explains. */
async function tooExpensive(call: Call, harmless: Put, hostile: Readonly<Record<string, Put>>) {
  // The first call also pays for what the others use.
  const [, ms] = [await cost(call, harmless), await cost(call, harmless)];
  const most = Math.max(MOST_TIMES * ms, LEAST_MS);
  const costs: [shape: string, ms: number][] = [];
  for (const [shape, put] of Object.entries(hostile)) costs.push([shape, await cost(call, put)]);
  return costs.filter(([, each]) => each > most);
}

const puts = (shapes: Readonly<Record<string, string>>, put: (shape: string) => Put) =>
  Object.fromEntries(Object.entries(shapes).map(([title, shape]) => [title, put(shape)]));

describe.each(Object.entries(CALLS))("%s", { timeout: 120_000 }, (_, call) => {
  test("costs about the same beside a hostile key as beside a harmless one of its length", async () => {
    const hostile = puts(KEYS, (below) => ({ below }));

    expect(await tooExpensive(call, { below: HARMLESS }, hostile)).toEqual([]);
  });

  test("costs about the same beside the entry of a hostile name as beside a harmless one of its length", async () => {
    const leaseId = await grantLease(two.etcd.member, 600);
    const entry = (shape: string) => ({ below: `${shape}/${leaseId.toString(16)}`, leaseId });
    const numbered = { below: `${leaseId.toString(16)}-${filled("7")}`, leaseId };

    const hostile = { ...puts(KEYS, entry), "a long number": numbered };
    expect(await tooExpensive(call, entry(HARMLESS), hostile)).toEqual([]);
  });

  test("costs about the same beside a hostile value as beside a harmless one of its length", async () => {
    const leaseId = await grantLease(two.etcd.member, 600);
    const valued = (value: string) => ({ below: leaseId.toString(16), leaseId, value });

    expect(await tooExpensive(call, valued(HARMLESS), puts(VALUES, valued))).toEqual([]);
  });
});
