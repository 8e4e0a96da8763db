import { once } from "node:events";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { EtcdRefusedError, EtcdUnavailableError } from "../../../src/errors.js";
import { UnansweredError } from "../../../src/etcd/port.js";
import { isUnreachable } from "../../../src/etcd/refusals.js";
import { disconnect } from "../../../src/lock/session/connection.js";
import { openLease } from "../../../src/lock/session/open-lease.js";
import { FakeCluster, HEADER } from "../../support/fakes/fake-connection.js";

const REFUSED = new UnansweredError("connect ECONNREFUSED 127.0.0.1:1", { kind: "unreachable" });
const SILENT = new UnansweredError("no answer within 2000 ms");
const ANSWER = { header: HEADER, kvs: [], more: false };
const LIMIT_MS = 10_000;
/** Pauses between attempts are at most a second long. */
const SOON_MS = 4000;

type Failures = (host: string) => Error | undefined;

/** A cluster whose hosts fail as `failureOf` says, or else answer. */
function world(failureOf: Failures) {
  const cluster = new FakeCluster();
  const setting = { failureOf, calls: 0 };
  cluster.onCall = (call, host) => {
    setting.calls++;
    const failure = setting.failureOf(host);
    if (failure) call.fail(failure);
    else call.answer(ANSWER);
  };
  return { cluster, setting };
}

/** A read, and whether it has ended. */
function read(cluster: FakeCluster, giveUpMs?: number) {
  const call = { over: false, error: undefined as unknown };
  const policy = { what: "test", ...(giveUpMs !== undefined && { giveUpMs }) };
  cluster.client.range({ key: "jobs/1" }, policy).then(
    () => (call.over = true),
    (error: unknown) => Object.assign(call, { over: true, error }),
  );
  return call;
}

describe("a call of a cluster that no host has ever answered", () => {
  test("ends before its limit when all hosts are unreachable, and names each with its failure", async () => {
    const { cluster } = world(() => REFUSED);

    const call = read(cluster, LIMIT_MS);
    await cluster.clock.pass(SOON_MS);

    expect(call.error).toBeInstanceOf(EtcdUnavailableError);
    expect([...(call.error as EtcdUnavailableError).members]).toEqual([
      ["a:1", REFUSED],
      ["b:1", REFUSED],
      ["c:1", REFUSED],
    ]);
    expect((call.error as Error).message).toMatch(
      /^no etcd reached within 3 s \(test\): a:1: .*\. Is etcd running\? To wait longer, first await cluster\.session\(\{ timeoutMs \}\)$/,
    );
  });

  test("tries each host at least twice before, and for more than two seconds", async () => {
    const { cluster } = world(() => REFUSED);
    const call = read(cluster, LIMIT_MS);

    await cluster.clock.pass(2000);
    expect(call.over).toBe(false);

    await cluster.clock.pass(SOON_MS);
    for (const host of ["a:1", "b:1", "c:1"])
      expect(cluster.connected.filter((member) => member.host === host).length).toBeGreaterThanOrEqual(2);
  });

  test.each<[string, Failures]>([
    ["one host is silent", (host) => (host === "b:1" ? SILENT : REFUSED)],
    ["all hosts are silent", () => SILENT],
  ])("uses all of its time when %s", async (_, failureOf) => {
    const { cluster } = world(failureOf);
    const call = read(cluster, LIMIT_MS);

    await cluster.clock.pass(LIMIT_MS - 2000);
    expect(call.over).toBe(false);

    await cluster.clock.pass(2000);
    expect(call.error).toBeInstanceOf(EtcdUnavailableError);
  });

  test("is answered if a host starts in time", async () => {
    const { cluster, setting } = world(() => REFUSED);
    const call = read(cluster, LIMIT_MS);

    await cluster.clock.pass(2000);
    setting.failureOf = () => undefined;
    await cluster.clock.pass(SOON_MS);

    expect(call).toEqual({ over: true, error: undefined });
  });

  test("continues for ever if it has no limit", async () => {
    const { cluster } = world(() => REFUSED);
    const call = read(cluster);

    await cluster.clock.pass(10 * LIMIT_MS);

    expect(call.over).toBe(false);
  });
});

describe("a call of a cluster that was answered before", () => {
  test.each<[string, Failures]>([
    ["with success", () => undefined],
    ["with a rejection", (host) => new EtcdRefusedError("permission", host, "permission denied")],
  ])("%s uses all of its time while all hosts are unreachable: etcd may be restarting", async (_, first) => {
    const { cluster, setting } = world(first);
    read(cluster, LIMIT_MS);
    await cluster.clock.pass(1);
    setting.failureOf = () => REFUSED;

    const call = read(cluster, LIMIT_MS);
    await cluster.clock.pass(LIMIT_MS - 2000);
    expect(call.over).toBe(false);

    await cluster.clock.pass(2000);
    expect(call.error).toBeInstanceOf(EtcdUnavailableError);
  });

  test("on a stream is one, too", async () => {
    const { cluster } = world(() => REFUSED);
    cluster.client.pool.accepts(cluster.client.pool.current, HEADER);

    const call = read(cluster, LIMIT_MS);
    await cluster.clock.pass(SOON_MS);

    expect(call.over).toBe(false);
  });
});

describe("a session that could not be opened", () => {
  const open = ({ state }: FakeCluster) =>
    openLease(
      state,
      { ttlSeconds: 4, owner: undefined, releaseDelayMs: 0 },
      { signal: undefined, timeoutMs: undefined },
    );

  test("because no request was ever sent leaves nothing to revoke: a close waits for nothing", async () => {
    const { cluster } = world(() => REFUSED);
    cluster.reachable = false;
    const opened = open(cluster).catch((error: unknown) => error);
    await cluster.clock.pass(SOON_MS);
    expect(await opened).toBeInstanceOf(EtcdUnavailableError);

    await disconnect(cluster.state);

    expect(cluster.connected.flatMap((member) => member.of("revoke"))).toEqual([]);
  });

  test("although a request was sent is revoked: etcd may have granted it", async () => {
    const { cluster } = world(() => SILENT);
    const opened = open(cluster).catch((error: unknown) => error);

    await cluster.clock.pass(2 * LIMIT_MS);

    expect(await opened).toBeInstanceOf(EtcdUnavailableError);
    expect(cluster.connected.flatMap((member) => member.of("revoke")).length).toBeGreaterThan(0);
  });
});

test.each([
  ["connect ECONNREFUSED 127.0.0.1:1", true],
  ["connect ECONNREFUSED ::1:1; connect ECONNREFUSED 127.0.0.1:1", true],
  ["getaddrinfo ENOTFOUND etcd.invalid", true],
  ["Name resolution failed for target dns:etcd.invalid:1", true],
  ["connect ECONNREFUSED ::1:1; connect ETIMEDOUT 127.0.0.1:1", false],
  ["getaddrinfo EAI_AGAIN etcd.invalid", false],
  ["connect EACCES /run/etcd.sock", true],
  ["connect EACCES 255.255.255.255:2379", false],
  ["no connection within 2000 ms", false],
  ["", false],
])("the reason %j for a missing connection is definite: %s", (reason, expected) => {
  expect(isUnreachable(reason)).toBe(expected);
});

test("a path that leads to no socket is a definite reason, whichever Node.js names", async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-socket-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(path.join(folder, "file"), "");
  symlinkSync("loop", path.join(folder, "loop"));
  const reasons = [];
  for (const name of ["none", "file", "file/socket", "loop"]) {
    const [error] = (await once(net.connect(path.join(folder, name)), "error")) as [NodeJS.ErrnoException];
    reasons.push(error.code);
    expect(isUnreachable(error.message)).toBe(true);
  }
  expect(reasons).toEqual(["ENOENT", "ECONNREFUSED", "ENOTDIR", "ELOOP"]);
});

describe("hosts that ask for a client certificate and close the connection", () => {
  const turnedAway = () => new UnansweredError("closed", { kind: "turned away" });

  test("reject the call at once while none has ever answered", async () => {
    const { cluster } = world(turnedAway);

    const call = read(cluster, LIMIT_MS);
    await cluster.clock.pass(SOON_MS / 4);

    expect(call.error).toBeInstanceOf(EtcdRefusedError);
    expect(call.error).toMatchObject({ reason: "tls", host: "a:1, b:1, c:1" });
  });

  test("are asked again once one has answered: a balancer may have lost its members", async () => {
    const { cluster, setting } = world(() => undefined);
    await cluster.client.range({ key: "jobs/1" }, { what: "test" });
    setting.failureOf = turnedAway;

    const call = read(cluster, LIMIT_MS);
    await cluster.clock.pass(SOON_MS);
    expect(call.over).toBe(false);
    setting.failureOf = () => undefined;
    await cluster.clock.pass(SOON_MS);

    expect(call).toEqual({ over: true, error: undefined });
  });
});
