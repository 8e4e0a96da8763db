// Everything that a caller gets from this library can be written as JSON, although JSON has no bigints.
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import {
  acquireChannel,
  electionChannel,
  holdEndChannel,
  holdLongChannel,
  rejoinChannel,
  renewedChannel,
  sessionChannel,
  shardChannel,
} from "../../../src/base/telemetry/index.js";
import {
  ClusterLockManager,
  connect,
  Election,
  FenceGate,
  inspect,
  join,
  lead,
  list,
  lockAll,
  members,
  Mutex,
  once,
  RwLock,
  Session,
  shards,
  type Cluster,
  type MemberList,
} from "../../../src/index.js";
import { startEtcd, type TestEtcd } from "../../../src/testing/start.js";

const REPORTS = new URL("../../../etc/", import.meta.url);
/** A property, or a getter, that has a bigint or several: parameters of methods do not count. */
const FIELD = /^ {4}(?:(?:readonly )?(\w+)|get (\w+)\(\)): [^(\n]*\bbigint\b/gm;

/** The fields with bigints of each exported class and interface, as the reports of the public types have them. */
function fieldsInReports(): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, readonly string[]>();
  for (const file of readdirSync(REPORTS).filter((name) => name.endsWith(".api.md"))) {
    const text = readFileSync(new URL(file, REPORTS), "utf8");
    for (const [, name = "", body = ""] of text.matchAll(
      /^export (?:abstract )?(?:class|interface|type) (\w+)[^\n]*\{\n(.*?)^\}/gms,
    )) {
      const fields = [...body.matchAll(FIELD)].map(([, field, getter = ""]) => field ?? getter);
      if (fields.length > 0) found.set(name, fields);
    }
  }
  return found;
}
const FIELDS = fieldsInReports();

let etcd: TestEtcd;
let cluster: Cluster;
/** What the calls gave, by the name of its type. */
const got = new Map<string, object>();
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(
    () => ({}),
    (reason: object) => reason,
  );

const until = (holds: () => boolean) => vi.waitUntil(holds, { timeout: 10_000 });

/** Takes the first message of each channel that `fits`. */
function listen(): void {
  const take = (name: string) => (message: object) => {
    if (!got.has(name)) got.set(name, message);
  };
  acquireChannel.asyncEnd.subscribe(take("AcquireMessage"));
  electionChannel.subscribe((message) => message.fence !== undefined && take("ElectionMessage")(message));
  holdEndChannel.subscribe(take("HoldEndMessage"));
  holdLongChannel.subscribe(take("HoldLongMessage"));
  rejoinChannel.subscribe((message) => message.leaseId !== undefined && take("RejoinMessage")(message));
  renewedChannel.subscribe(take("RenewedMessage"));
  sessionChannel.subscribe(take("SessionMessage"));
  shardChannel.subscribe(take("ShardMessage"));
}

beforeAll(async () => {
  etcd = await startEtcd();
  listen();
  cluster = connect({ hosts: etcd.hosts, session: { ttlSeconds: 2 } });
  const session = await cluster.session();
  const lock = await new Mutex(cluster, "json/held", { warnHoldMs: 1 }).lock();
  const state = await inspect(cluster, "json/held");
  got.set("Session", session);
  got.set("Lock", lock);
  got.set("Hold", await new RwLock(cluster, "json/read").readLock());
  got.set("QueueState", state);
  got.set("Contender", state.holders[0]!);
  got.set("LockPage", await list(cluster, "json/"));
  got.set("HoldSnapshot", cluster.snapshot().holds[0]!);
  got.set("SessionSnapshot", cluster.snapshot().sessions[0]!);
  const sticky = new Mutex(cluster, "json/kept", { sticky: true });
  await (await sticky.lock()).release();
  await (await sticky.lock()).release();
  got.set("KeptSnapshot", cluster.snapshot().kept[0]!);
  await using other = await Session.open(cluster);
  const waiting = new Mutex(other, "json/held").lock();
  await until(() => cluster.snapshot().waits[0]?.revision !== undefined);
  got.set("WaitSnapshot", cluster.snapshot().waits[0]!);
  await until(() => got.has("HoldLongMessage"));
  await lock.release();
  await (await waiting).release();
  await (await lockAll(cluster, ["json/a", "json/b"])).release();

  const stop = new AbortController();
  const work = async () => {
    got.set("Leader", (await new Election(cluster, "json/led").leader())!);
    got.set("ElectionCandidate", (await new Election(cluster, "json/led").candidates())[0]!);
    stop.abort();
  };
  await lead(cluster, "json/led", work, { signal: stop.signal });
  const feeds = await shards(cluster, "json/feeds", { count: 1, settleMs: 0 }, (shard) => {
    got.set("Shard", shard);
  });
  await until(() => feeds.owner(0) !== undefined && got.has("Shard"));
  got.set("ShardOwner", feeds.owner(0)!);
  got.set("ShardOwners", (await feeds.owners().next()).value as object);
  await feeds.close();
  await once(cluster, "json/once", 1, () => undefined);
  got.set("OnceRecord", (await once.history(cluster, "json/once"))[0]!);
  const place = await join(cluster, "json/group", "here");
  got.set("Membership", place);
  const group = (await members(cluster, "json/group").next()).value as MemberList;
  got.set("MemberList", group);
  got.set("Member", group.members[0]!);
  await place.leave();
  await new ClusterLockManager(cluster).request("json/web", (web) => void got.set("WebLock", web!));

  const gate = new FenceGate(17n);
  got.set("FenceGate", gate);
  got.set("StaleFenceError", await reasonOf(Promise.resolve().then(() => gate.admit(16n))));
  await until(() => got.has("RenewedMessage"));
  const rejoins = new Mutex(cluster, "json/read").lock({ rejoin: true, signal: AbortSignal.timeout(20_000) });
  await until(() => cluster.snapshot().waits.length === 1);
  await etcd.expire(session);
  await rejoins.then((hold) => hold.release());
  got.set("SessionLostError", session.signal.reason as object);
  got.set("Leftovers", await etcd.leftovers());
  await cluster.close();
  got.set("SessionClosedError", await reasonOf(cluster.session()));
}, 60_000);
afterAll(() => etcd.stop());

describe("JSON", () => {
  test("is tried for each exported class and interface with a bigint", () => {
    expect([...FIELDS.keys()].sort()).toEqual([...got.keys()].sort());
  });

  test.each([...FIELDS])("of a %s has decimal strings in %j", (name, fields) => {
    const value = got.get(name) as Record<string, unknown>;
    const text = (field: unknown): unknown =>
      Array.isArray(field) ? field.map(text) : typeof field === "bigint" ? String(field) : field;

    const parsed = JSON.parse(JSON.stringify(value)) as Record<string, unknown>;

    // A lock of the Web Locks API is an empty object in browsers, too.
    const expected = name === "WebLock" ? [] : fields.map((field) => [field, text(value[field])]);
    expect(Object.fromEntries(Object.entries(parsed).filter(([field]) => fields.includes(field)))).toEqual(
      Object.fromEntries(expected),
    );
    expect(Object.keys(value)).not.toContain("toJSON");
  });
});
