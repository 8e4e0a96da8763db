import { Console } from "node:console";
import { readFileSync } from "node:fs";
import { Writable } from "node:stream";
import pino from "pino";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { SessionLostError } from "../../../../src/errors.js";
import type { Logger, LogRecord } from "../../../../src/index.js";
import {
  callChannel,
  electionChannel,
  holdEndChannel,
  holdLongChannel,
  memberChannel,
  rejoinChannel,
  renewedChannel,
  sessionChannel,
  shardChannel,
} from "../../../../src/base/telemetry/channels.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { LEASE_ID, LogWorld } from "../../../support/fixtures/log-world.js";

let world: LogWorld;
let records: LogRecord[];

beforeEach(() => {
  records = [];
  world = new LogWorld((record) => void records.push(record));
});
afterEach(() => world.end());

const lost = new SessionLostError(LEASE_ID, "expired", "no renewal was accepted");
const lock = (reason: "deleted" | "released" | "expired" | "max_hold", error?: Error) => ({
  ...{ hosts: world.hosts, kind: "mutex" as const, name: "a", names: ["a"], label: undefined },
  ...{ owner: "web-1", leaseId: LEASE_ID, key: "a/6a1f", revision: 7n, fence: 7n, heldMs: 1500 },
  ...{ reason, error },
});
const about = { kind: "mutex", name: "a", session: "6a1f", fence: "7", owner: "web-1", durationMs: 1500 };

test("a function gets what was lost as data, with the line as its message", () => {
  holdEndChannel.publish(lock("deleted", lost));
  expect(records).toEqual([
    {
      ...{ level: "error", event: "lock.lost", ...about, error: "SESSION_LOST" },
      message: `mutex "a" lost after 1.5 s: ${lost.message}`,
    },
  ]);
});

test("a console gets no lines for debugging, unless its methods are given as an object's", () => {
  const written: string[] = [];
  const write = (chunk: Buffer, _: string, done: () => void) => (written.push(String(chunk)), done());
  const stream = new Writable({ write });
  const terminal = new Console(stream, stream);
  const methods: Logger = {
    warn: (line) => terminal.warn(line),
    error: (line) => terminal.error(line),
    debug: (line) => terminal.debug(line),
  };
  const publish = (logger: Logger): number => {
    using other = new LogWorld(logger);
    written.length = 0;
    other.finish(other.begin(other.call("a")), { outcome: "granted", waitedMs: 1 });
    for (const reason of ["released", "deleted"] as const)
      holdEndChannel.publish({ ...lock(reason), hosts: other.hosts });
    return written.length;
  };

  expect([publish(terminal), publish(methods)]).toEqual([1, 3]);
  const debugOf = vi.spyOn(console, "debug").mockImplementation(() => undefined);
  const errorOf = vi.spyOn(console, "error").mockImplementation(() => undefined);
  publish(console);
  expect([debugOf.mock.calls.length, errorOf.mock.calls.length]).toEqual([0, 1]);
  vi.restoreAllMocks();
});

test("pino writes a record with its fields and its line", () => {
  const written: string[] = [];
  const logger = pino({ base: null, timestamp: false }, { write: (line: string) => void written.push(line) });
  using other = new LogWorld(({ level, message, ...fields }) => logger[level](fields, message));
  holdEndChannel.publish({ ...lock("deleted", lost), hosts: other.hosts });
  expect(written.map((line) => JSON.parse(line) as unknown)).toEqual([
    {
      level: 50,
      event: "lock.lost",
      ...about,
      error: "SESSION_LOST",
      msg: `mutex "a" lost after 1.5 s: ${lost.message}`,
    },
  ]);
});

test("the locks that end with a session are in its record", async () => {
  holdEndChannel.publish(lock("expired"));
  sessionChannel.publish(world.session("jeopardy", "lost", { error: lost }));
  await settle();
  expect(records).toMatchObject([
    {
      level: "error",
      event: "session.lost",
      session: "6a1f",
      owner: "web-1",
      names: ["a"],
      error: "SESSION_LOST",
    },
  ]);
});

test("a long wait has its holder and the number of entries ahead", async () => {
  const holder = { key: "a/1", owner: "web-9\u001b[2J", value: undefined, since: undefined };
  world.readWait = () => Promise.resolve({ name: "a", holder: holder as never, ahead: 3 });
  world.begin(world.call("a"));
  world.clock.advance(30_500);
  await settle();
  expect(records).toMatchObject([{ level: "warn", event: "wait.long", name: "a", ahead: 3 }]);
  expect(records[0]!.holder).toMatch(/^web-9[^\u001b]+$/);
});

test("what the function throws, or rejects with, is dropped", () => {
  using broken = new LogWorld(() => {
    throw new Error("full");
  });
  using rejecting = new LogWorld(() => Promise.reject(new Error("full")));
  for (const each of [broken, rejecting])
    sessionChannel.publish(each.session("jeopardy", "lost", { error: lost }));
});

test("each event that is written is in the table of docs/observability.md, and JSON can hold each record", async () => {
  const [host] = world.hosts as [string];
  const election = {
    hosts: world.hosts,
    name: "e",
    label: undefined,
    owner: "web-1",
    fence: 9n,
    error: lost,
  };
  sessionChannel.publish(world.session(undefined, "live"));
  sessionChannel.publish(world.session("live", "jeopardy", { remainingMs: 5900 }));
  sessionChannel.publish(world.session("jeopardy", "live"));
  sessionChannel.publish(world.session("live", "closed"));
  const renewed = { hosts: world.hosts, leaseId: LEASE_ID, ttlSeconds: 15 };
  renewedChannel.publish({ ...renewed, durationMs: 5000 });
  renewedChannel.publish({ ...renewed, durationMs: 5 });
  for (const reason of ["deleted", "released", "max_hold"] as const)
    holdEndChannel.publish(lock(reason, lost));
  holdLongChannel.publish({ ...lock("released"), warnHoldMs: 1000 });
  for (const state of ["campaigning", "elected", "resigned", "lost", "retrying", "stopped"] as const)
    electionChannel.publish({ ...election, state, delayMs: 1000 });
  const shard = { hosts: world.hosts, name: "feeds", label: undefined, shard: 7, fence: 9n };
  for (const state of ["owned", "moving", "moved", "lost", "stuck", "failed"] as const)
    shardChannel.publish({ ...shard, state, drainMs: 1000, error: lost });
  const member = { hosts: world.hosts, host };
  memberChannel.publish({ ...member, state: "up", error: undefined });
  memberChannel.publish({ ...member, state: "refused", error: lost });
  memberChannel.publish({ ...member, state: "up", error: undefined });
  const rejoin = { ...lock("released"), error: lost, failures: 1, delayMs: 5 };
  rejoinChannel.publish(rejoin);
  world.clock.advance(1_000);
  callChannel.asyncEnd.publish({
    ...{ hosts: world.hosts, what: "txn", attempts: 2, durationMs: 9, host, error: undefined },
  });
  await settle();

  const documented = readFileSync("docs/observability.md", "utf8");
  const events = new Set(records.map(({ event }) => event));
  expect([...events].filter((event) => !documented.includes(`\`${event}\``))).toEqual([]);
  expect(events.size).toBeGreaterThan(18);
  for (const record of records) expect(JSON.parse(JSON.stringify(record))).toEqual(record);
});
