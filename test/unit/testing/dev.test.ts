// What any program may send to the port of `startDevEtcd`.
import { once } from "node:events";
import { connect as http2 } from "node:http2";
import net from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MessageReader } from "../../../src/etcd/http2/stream.js";
import { decode, encode, type Message } from "../../../src/testing/grpc/codec.js";
import * as concurrency from "../../../src/testing/grpc/concurrency.js";
import * as messages from "../../../src/testing/grpc/messages.js";
import { startDevEtcd, type TestEtcd } from "../../../src/testing/start.js";

let etcd: TestEtcd;
beforeAll(async () => void (etcd = await startDevEtcd({ port: 0 })));
afterAll(() => etcd.stop());

interface Answer {
  readonly status: string;
  readonly message: string;
  readonly bytes: Buffer;
}

const framed = (message: Buffer, flag = 0): Buffer => {
  const prefix = Buffer.from([flag, 0, 0, 0, 0]);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
};

/** Sends `body` in parts of `part` bytes. */
async function call(
  path: string,
  body: Buffer,
  { part = 60_000, ...headers }: { part?: number; "grpc-encoding"?: string; token?: string } = {},
): Promise<Answer> {
  const session = http2(`http://${etcd.hosts[0]}`);
  try {
    const stream = session.request({
      ...{ ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers" },
      ...headers,
    });
    const found: Record<string, unknown> = {};
    const chunks: Buffer[] = [];
    stream.on("error", () => {});
    stream.on("response", (each) => void Object.assign(found, each));
    stream.on("trailers", (each) => void Object.assign(found, each));
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    for (let at = 0; at < body.length && !stream.destroyed; at += part)
      stream.write(body.subarray(at, at + part));
    stream.end();
    await once(stream, "close");
    const [status, message] = [found["grpc-status"], found["grpc-message"]].map((each) => String(each));
    return { status: status!, message: decodeURIComponent(message!), bytes: Buffer.concat(chunks) };
  } finally {
    session.destroy();
  }
}

const RANGE = "/etcdserverpb.KV/Range";
const PUT = "/etcdserverpb.KV/Put";
const TXN = "/etcdserverpb.KV/Txn";
/** What precedes the content of a field. */
const prefixOf = (number: number, length: number): Buffer => {
  const bytes = [(number << 3) | 2];
  for (let rest = length; ; rest >>>= 7) {
    bytes.push(rest > 0x7f ? (rest & 0x7f) | 0x80 : rest);
    if (rest <= 0x7f) return Buffer.from(bytes);
  }
};
const field = (number: number, content: Buffer): Buffer =>
  Buffer.concat([prefixOf(number, content.length), content]);
const read = (key: string): Buffer => field(1, Buffer.from(key));

/** A call of one of the services by which jetcd locks and elects. */
async function ask<Request extends object, Response extends object>(
  path: string,
  [request, response]: readonly [Message<Request>, Message<Response>],
  asked: Request,
): Promise<Response> {
  const { status, message, bytes } = await call(path, encode(request, asked));
  if (status !== "0") throw new Error(message);
  return decode(response, bytes.subarray(5));
}

const [put, range, deletion] = [
  (key: string, value = "", previous = false) =>
    ask(PUT, [messages.PUT_REQUEST, messages.PUT_RESPONSE], {
      ...{ key: Buffer.from(key), value: Buffer.from(value), leaseId: 0n, previous },
      ...{ ignoreValue: false, ignoreLease: false },
    }),
  (prefix: string, how: Partial<messages.RangeRequest> = {}) =>
    ask(RANGE, [messages.RANGE_REQUEST, messages.RANGE_RESPONSE], {
      ...{ key: Buffer.from(prefix), end: Buffer.from(`${prefix}~`), limit: 0n, revision: 0n },
      ...{ order: 0, target: 0, serializable: false, keysOnly: false, countOnly: false },
      ...{ minModRevision: 0n, maxModRevision: 0n, minCreateRevision: 0n, maxCreateRevision: 0n, ...how },
    }),
  (key: string) =>
    ask("/etcdserverpb.KV/DeleteRange", [messages.DELETION_REQUEST, messages.DELETION_RESPONSE], {
      ...{ key: Buffer.from(key), previous: true },
    }),
];

/** A call that stays open. */
function converse<Request extends object, Response extends object>(
  path: string,
  [request, response]: readonly [Message<Request>, Message<Response>],
  host = etcd.hosts[0]!,
) {
  const session = http2(`http://${host}`).on("error", () => {});
  const stream = session.request({ ":method": "POST", ":path": path, "content-type": "application/grpc" });
  const answers: Response[] = [];
  const reader = new MessageReader(2 ** 26);
  stream.on("error", () => {});
  stream.on("data", (data: Buffer) =>
    reader.read(data, { message: (body) => void answers.push(decode(response, body)) }),
  );
  return {
    answers,
    endSending: () => void stream.end(),
    send: (message: Partial<Request>) => void stream.write(encode(request, message as Request)),
    [Symbol.dispose]: () => session.destroy(),
  };
}

const watch = () => converse("/etcdserverpb.Watch/Watch", [messages.WATCH_REQUEST, messages.WATCH_RESPONSE]);
const creation = (watchId: bigint, how: Partial<messages.WatchCreation>): messages.WatchMessage => ({
  create: {
    ...{ key: Buffer.from("wa"), startRevision: 0n, filters: [], previous: false, fragment: false },
    ...how,
    watchId,
  },
});

describe("startDevEtcd", () => {
  test("a watch has previous values and leaves out what it was told to, until it is cancelled", async () => {
    using watching = watch();
    const [all, noPuts, noDeletions, nothing] = [1n, 2n, 3n, 4n];
    watching.send(creation(all, { previous: true }));
    watching.send(creation(noPuts, { filters: [0] }));
    watching.send(creation(noDeletions, { filters: [1] }));
    watching.send(creation(nothing, { filters: [0, 1] }));
    await expect.poll(() => watching.answers).toHaveLength(4);
    await put("wa", "one");
    await put("wa", "two");
    await deletion("wa");
    await expect.poll(() => watching.answers.flatMap(({ events }) => events)).toHaveLength(6);
    watching.send({ cancel: { watchId: all } });
    await expect.poll(() => watching.answers.some(({ cancelled }) => cancelled)).toBe(true);
    await put("wa", "three");
    await expect.poll(() => watching.answers.flatMap(({ events }) => events)).toHaveLength(7);

    const seen = (watchId: bigint) =>
      watching.answers
        .filter((answer) => BigInt(answer.watchId) === watchId)
        .flatMap(({ events }) => events)
        .map(({ type, kv, previous }) => [type, String(kv.value), previous && String(previous.value)].join());
    expect(seen(all)).toEqual(["0,one,", "0,two,one", "1,,two"]);
    expect(seen(noPuts)).toEqual(["1,,"]);
    expect(seen(noDeletions)).toEqual(["0,one,", "0,two,", "0,three,"]);
    expect(seen(nothing)).toEqual([]);
  });

  test("a watch goes on when its client sends no more, until the client is gone", async () => {
    {
      using watching = watch();
      watching.send(creation(1n, {}));
      watching.endSending();
      await expect.poll(() => watching.answers).toHaveLength(1);
      await put("wa", "late");
      await expect.poll(() => watching.answers.flatMap(({ events }) => events)).toHaveLength(1);
    }
    await expect.poll(async () => (await etcd.leftovers()).watches).toBe(0);
  });

  test("an event that creates a key has no previous value, also after a deletion in one transaction", async () => {
    await put("wa", "before");
    using watching = watch();
    watching.send(creation(1n, { previous: true }));
    await expect.poll(() => watching.answers).toHaveLength(1);
    // Only of a range without an end does etcd not notice that it contains the key.
    const deletionOfAll = field(3, Buffer.concat([field(1, Buffer.from("wa")), field(2, Buffer.from("\0"))]));
    const creationOfOne = field(
      2,
      Buffer.concat([field(1, Buffer.from("wa")), field(2, Buffer.from("new"))]),
    );
    const txn = Buffer.concat([field(2, deletionOfAll), field(2, creationOfOne)]);
    expect((await call(TXN, framed(txn))).status).toBe("0");
    await expect.poll(() => watching.answers.flatMap(({ events }) => events)).toHaveLength(2);
    const events = watching.answers.flatMap((answer) => answer.events);
    expect(events.map(({ type, previous }) => [type, previous && String(previous.value)])).toEqual([
      [1, "before"],
      [0, undefined],
    ]);
  });

  test("a limit without an order takes the first keys, and sorts these by the target", async () => {
    for (const [key, value] of ["c", "b", "a"].entries()) await put(`lim/${key}`, value);
    const keysOf = async (how: Partial<messages.RangeRequest>): Promise<string[]> =>
      (await range("lim/", how)).kvs.map((kv) => String(kv.key));

    expect(await keysOf({ limit: 1n, target: 4 })).toEqual(["lim/1"]);
    expect(await keysOf({ limit: 1n, target: 4, order: 1 })).toEqual(["lim/2"]);
    expect(await keysOf({ limit: 1n, target: 4, minModRevision: 1n })).toEqual(["lim/2"]);
  });

  test("an alarm can be raised and disarmed, and one that it does not have is refused", async () => {
    const alarm = async (action: number, kind: number) => {
      const request = { action, alarm: kind };
      const path = "/etcdserverpb.Maintenance/Alarm";
      const { alarms } = await ask(path, [messages.ALARM_REQUEST, messages.ALARMS_RESPONSE], request);
      return alarms.map((each) => each.alarm);
    };
    expect(await alarm(1, 1)).toEqual([1]);
    await expect(put("full")).rejects.toThrow("etcdserver: mvcc: database space exceeded");
    expect([await alarm(0, 0), await alarm(2, 1), await alarm(0, 0)]).toEqual([[1], [1], []]);
    await put("full");
    await expect(alarm(1, 2)).rejects.toThrow("only the alarm NOSPACE");
  });

  test("answers health checks, hashes, and a list of members without a revision", async () => {
    const health = [messages.HEALTH_REQUEST, messages.HEALTH_RESPONSE] as const;
    const check = (service: string) => ask("/grpc.health.v1.Health/Check", health, { service });
    expect(await check("")).toEqual({ status: 1 });
    await expect(check("nobody")).rejects.toThrow("unknown service");
    using watching = converse("/grpc.health.v1.Health/Watch", health);
    watching.send({ service: "" });
    await expect.poll(() => watching.answers).toEqual([{ status: 1 }]);

    const hashOf = async (): Promise<number> =>
      (await ask("/etcdserverpb.Maintenance/Hash", [messages.EMPTY, messages.HASH_RESPONSE], {})).hash;
    const before = await hashOf();
    await put("hashed");
    expect([before, await hashOf()]).not.toEqual([before, before]);

    const list = [messages.EMPTY, messages.MEMBERS_RESPONSE] as const;
    const { header, members } = await ask("/etcdserverpb.Cluster/MemberList", list, {});
    expect([header?.revision, header?.memberId, members.length]).toEqual([0n, members[0]?.memberId, 1]);
  });

  test("takes a permission for a range only if it has one, from 3.5 on", async () => {
    const request = [messages.GRANT_PERMISSION_REQUEST, messages.HEADER_ONLY] as const;
    const grant = (key: string, end: string) =>
      ask("/etcdserverpb.Auth/RoleGrantPermission", request, {
        ...{ name: "nobody", permission: { type: 2, key: Buffer.from(key), end: Buffer.from(end) } },
      }).catch(({ message }: Error) => message);

    for (const [key, end] of [
      ["", ""],
      ["", "z"],
      ["b", "a"],
      ["b", "b"],
    ] as const)
      expect(await grant(key, end)).toBe("etcdserver: invalid auth management");
    for (const end of ["", "c", "\0"]) expect(await grant("b", end)).toBe("etcdserver: role name not found");
    expect(
      await ask("/etcdserverpb.Auth/RoleGrantPermission", request, { name: "nobody" }).catch(String),
    ).toContain("permission not given");
  });

  test("tells a browser what it is, and answers /health, also on a connection that comes byte by byte", async () => {
    const [found, health] = await Promise.all(
      ["", "health?serializable=true"].map((path) => fetch(`http://${etcd.hosts[0]}/${path}`)),
    );
    expect([found!.status, await found!.text()]).toEqual([
      404,
      expect.stringMatching(/^leasehold dev, .*gRPC/),
    ]);
    expect([health!.status, await health!.json()]).toEqual([200, { health: "true", reason: "" }]);

    const socket = net.connect(Number(etcd.hosts[0]!.split(":")[1]), "127.0.0.1").setNoDelay(true);
    for (const byte of "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") {
      socket.write(byte);
      await new Promise(setImmediate);
    }
    socket.write(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]));
    const [settings] = (await once(socket, "data")) as [Buffer];
    expect(settings[3]).toBe(4);
    socket.destroy();
  });

  test("a watch gets what is larger than an answer in parts, if it wants to", async () => {
    const large = "x".repeat(1_200_000);
    const { header } = await put("wp/1", large);
    await put("wp/2", large);
    const [key, end] = [Buffer.from("wp/"), Buffer.from("wp0")];
    using watching = watch();
    watching.send(creation(1n, { key, end, startRevision: header!.revision!, fragment: true }));
    watching.send(creation(2n, { key, end, startRevision: header!.revision! }));
    await expect.poll(() => watching.answers.flatMap(({ events }) => events)).toHaveLength(4);

    const parts = (id: number) =>
      watching.answers.filter(({ watchId, events }) => watchId === id && events.length > 0);
    expect(parts(1).map(({ events, fragment }) => [events.length, fragment])).toEqual([
      [1, true],
      [1, false],
    ]);
    expect(parts(2).map(({ events, fragment }) => [events.length, fragment])).toEqual([[2, false]]);
  });

  test("a renewal is answered with the TTL of the lease, and with 0 if there is none", async () => {
    const { leaseId } = await ask(
      "/etcdserverpb.Lease/LeaseGrant",
      [messages.GRANT_REQUEST, messages.LEASE_RESPONSE],
      { leaseId: 0n, ttlSeconds: 77n },
    );
    using renewing = converse("/etcdserverpb.Lease/LeaseKeepAlive", [
      messages.LEASE_REQUEST,
      messages.LEASE_RESPONSE,
    ]);
    for (const id of [leaseId, leaseId + 1n]) renewing.send({ leaseId: id });
    await expect.poll(() => renewing.answers).toHaveLength(2);

    expect(renewing.answers.map((answer) => answer.ttlSeconds)).toEqual([77, 0]);
  });

  test("a revoked lease takes its keys along", async () => {
    const path = (method: string) => `/etcdserverpb.Lease/Lease${method}`;
    const grant = [messages.GRANT_REQUEST, messages.LEASE_RESPONSE] as const;
    const { leaseId } = await ask(path("Grant"), grant, { leaseId: 0n, ttlSeconds: 60n });
    await ask(PUT, [messages.PUT_REQUEST, messages.PUT_RESPONSE], {
      ...{ key: Buffer.from("leased"), value: Buffer.from("x"), leaseId, previous: false },
      ...{ ignoreValue: false, ignoreLease: false },
    });
    expect((await range("leased")).count).toBe(1);
    await ask(path("Revoke"), [messages.LEASE_REQUEST, messages.HEADER_ONLY], { leaseId });

    expect((await range("leased")).count).toBe(0);
  });

  test("a watch that starts before a compaction ends with its revision", async () => {
    const first = (await put("wc", "1")).header!.revision!;
    const last = (await put("wc", "2")).header!.revision!;
    const compaction = [messages.COMPACTION_REQUEST, messages.HEADER_ONLY] as const;
    await ask("/etcdserverpb.KV/Compact", compaction, { revision: last });
    using watching = watch();
    watching.send(creation(1n, { key: Buffer.from("wc"), startRevision: first }));
    await expect.poll(() => watching.answers).toHaveLength(2);

    expect(watching.answers[1]).toMatchObject({ watchId: 1, cancelled: true, compactRevision: last });
    await expect(range("wc", { revision: first })).rejects.toThrow("has been compacted");
  });

  test("ranges are filtered by revision, sorted and counted, and writes tell what was before", async () => {
    const revisions: bigint[] = [];
    for (const key of ["r/a", "r/b", "r/c"]) revisions.push((await put(key, key)).header!.revision!);
    const again = await put("r/a", "new", true);
    const [, second = 0n, third = 0n] = revisions;
    const keys = async (how: Partial<messages.RangeRequest>) => {
      const { kvs, count, more } = await range("r/", how);
      return [...kvs.map(({ key }) => String(key)), count, more].join(" ");
    };

    expect(String(again.previous?.value)).toBe("r/a");
    expect(await keys({ maxModRevision: third })).toBe("r/b r/c 3 false");
    expect(await keys({ minCreateRevision: second, maxCreateRevision: second })).toBe("r/b 3 false");
    expect(await keys({ order: 2, target: 3, limit: 2n })).toBe("r/a r/c 3 true");
    expect(await keys({ target: 2 })).toBe("r/a r/b r/c 3 false");
    expect(await keys({ order: 2 })).toBe("r/c r/b r/a 3 false");
    const { deleted, previous } = await deletion("r/a");
    expect([deleted, ...previous.map(({ value }) => String(value))]).toEqual([1, "new"]);
  });

  test("v3lock gives a lock to one lease after the other, and takes a waiter that has left out of the queue", async () => {
    const [name, lock] = [Buffer.from("v3"), [concurrency.LOCK_REQUEST, concurrency.KEY_RESPONSE] as const];
    const locking = () => ask("/v3lockpb.Lock/Lock", lock, { name, leaseId: 0n });
    const unlock = (key: Buffer) =>
      ask("/v3lockpb.Lock/Unlock", [concurrency.KEY_REQUEST, messages.HEADER_ONLY], { key });
    const places = (count: number) => expect.poll(() => etcd.keys("v3/")).toHaveLength(count);
    const first = await locking();
    const session = http2(`http://${etcd.hosts[0]}`);
    const leaving = session.request({
      ...{ ":method": "POST", ":path": "/v3lockpb.Lock/Lock", "content-type": "application/grpc" },
    });
    leaving.on("error", () => {});
    leaving.end(encode(concurrency.LOCK_REQUEST, { name, leaseId: 0n }));
    await places(2);
    const third = locking();
    await places(3);

    leaving.close(8);
    await places(2);
    await unlock(first.key);
    await unlock((await third).key);

    await places(0);
    session.destroy();
  });

  test("v3election has one leader after the other, who proclaims and resigns", async () => {
    const name = Buffer.from("v3e");
    const path = (method: string) => `/v3electionpb.Election/${method}`;
    const campaign = [concurrency.CAMPAIGN_REQUEST, concurrency.CAMPAIGN_RESPONSE] as const;
    const campaigns = (value: string) =>
      ask(path("Campaign"), campaign, { name, leaseId: 0n, value: Buffer.from(value) });
    const leader = async () =>
      (
        await ask(path("Leader"), [concurrency.NAMED_REQUEST, concurrency.LEADER_RESPONSE], { name })
      ).kv.value.toString();
    await expect(leader()).rejects.toThrow("election: no leader");
    const first = await campaigns("a");
    const second = campaigns("b");
    await expect.poll(() => etcd.keys("v3e/")).toHaveLength(2);
    const proclaim = [concurrency.PROCLAIM_REQUEST, messages.HEADER_ONLY] as const;
    await ask(path("Proclaim"), proclaim, { leader: first.leader, value: Buffer.from("a2") });
    expect(await leader()).toBe("a2");

    const resign = [concurrency.RESIGN_REQUEST, messages.HEADER_ONLY] as const;
    await ask(path("Resign"), resign, { leader: first.leader });
    await second;

    expect(await leader()).toBe("b");
    await expect(ask(path("Proclaim"), proclaim, { leader: first.leader, value: name })).rejects.toThrow(
      "election: not leader",
    );
  });

  test("answers a message that arrives byte by byte", async () => {
    const key = Buffer.from("bytes");
    const put = Buffer.concat([field(1, key), field(2, Buffer.from([0xff, 0, 0xfe]))]);
    expect(await call(PUT, framed(put), { part: 1 })).toMatchObject({ status: "0" });
    const { status, bytes } = await call(RANGE, framed(read("bytes")), { part: 1 });

    expect(status).toBe("0");
    expect(bytes.includes(Buffer.from([0xff, 0, 0xfe]))).toBe(true);
  });

  test("rejects with gRPC's codes what it does not know and what is no message", async () => {
    const calls = await Promise.all([
      call("/etcdserverpb.Maintenance/Snapshot", framed(Buffer.alloc(0))),
      call("/nobody.Knows/this", framed(Buffer.alloc(0))),
      call(RANGE, framed(read("a"), 1), { "grpc-encoding": "gzip" }),
      call(RANGE, framed(Buffer.from([0x0a, 0xff, 0xff, 0xff, 0x7f]))),
      call(RANGE, framed(Buffer.from("0801", "hex"))),
      call(RANGE, Buffer.alloc(0)),
      call(RANGE, framed(Buffer.alloc(0))),
      call("/v3lockpb.Lock/Lock", Buffer.alloc(0)),
    ]);

    expect(calls.map(({ status }) => status)).toEqual(["12", "12", "12", "13", "13", "13", "3", "13"]);
    expect(calls[0].message).toBe("unknown method Snapshot for service etcdserverpb.Maintenance");
    expect(calls[6].message).toBe("etcdserver: key is not provided");
  });

  test("ends transactions in transactions with an error, however deep they are", async () => {
    let txn: Buffer = Buffer.alloc(0);
    for (let depth = 0; depth < 200; depth++) txn = field(2, field(4, txn));
    const deep = await call(TXN, framed(txn));
    // As deep as a request can be.
    const levels: Buffer[] = [];
    for (let length = 0; length < 1_500_000;)
      for (const number of [4, 2]) length += levels[levels.push(prefixOf(number, length)) - 1]!.length;
    const nested = Buffer.concat(levels.reverse());

    expect(deep).toMatchObject({
      ...{ status: "3", message: "etcdserver: too many operations in txn request" },
    });
    expect(await call(TXN, framed(nested))).toMatchObject({ status: "13" });
    expect(await call(RANGE, framed(read("a")))).toMatchObject({ status: "0" });
  });

  test("rejects a request that is larger than etcd takes, and goes on", async () => {
    const put = (bytes: number): Buffer =>
      framed(Buffer.concat([field(1, Buffer.from("large")), field(2, Buffer.alloc(bytes, "x"))]));
    const MiB = 1024 * 1024;

    expect(await call(PUT, put(MiB))).toMatchObject({ status: "0" });
    expect(await call(PUT, put(1.6 * MiB))).toMatchObject({
      ...{ status: "3", message: "etcdserver: request is too large" },
    });
    expect(await call(PUT, put(3 * MiB))).toMatchObject({
      ...{ status: "8", message: `grpc: received message larger than max (${3 * MiB + 12} vs. ${2 * MiB})` },
    });
    expect(await call(RANGE, framed(read("large")))).toMatchObject({ status: "0" });
  });

  test("survives connections that speak something else, and calls that end early", async () => {
    const [, port = ""] = etcd.hosts[0]!.split(":");
    for (const text of [
      "GET / HTTP/1.1\r\n\r\n",
      "\0".repeat(1000),
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff",
    ]) {
      const socket = net.connect(Number(port), "127.0.0.1");
      socket.on("error", () => {});
      socket.end(text);
      socket.resume();
      await once(socket, "close");
    }
    const session = http2(`http://${etcd.hosts[0]}`);
    const headers = {
      ":method": "POST",
      ":path": "/etcdserverpb.Watch/Watch",
      "content-type": "application/grpc",
    };
    const streams = Array.from({ length: 100 }, () => session.request(headers));
    for (const stream of streams) {
      stream.on("error", () => {});
      stream.write(framed(field(1, read("a"))));
    }
    await expect.poll(async () => (await etcd.leftovers()).watches).toBe(100);
    for (const stream of streams) stream.close(8);

    await expect.poll(async () => (await etcd.leftovers()).watches).toBe(0);
    session.destroy();
    expect(await call(RANGE, framed(read("a")))).toMatchObject({ status: "0" });
  });

  test("a port in use rejects the start with its number, and leaves nothing behind", async () => {
    const port = Number(etcd.hosts[0]!.split(":")[1]);

    await expect(startDevEtcd({ port })).rejects.toMatchObject({ code: "EADDRINUSE", port });
  });

  test.each([
    [{ port: -1 }, "port"],
    [{ port: 65_534, members: 3 }, "port"],
    [{ members: 2 }, "members"],
    [{ version: "3.3" }, "version"],
    [{ host: "0.0.0.0" }, "host"],
  ])("rejects %j", async (options, name) => {
    await expect(startDevEtcd(options as object)).rejects.toThrow(new RegExp(name));
  });

  test("does not start with NODE_ENV=production, unless it is asked to", async () => {
    const before = process.env["NODE_ENV"];
    process.env["NODE_ENV"] = "production";
    try {
      await expect(startDevEtcd({ port: 0 })).rejects.toThrow("NODE_ENV is production");
      await (await startDevEtcd({ port: 0, evenInProduction: true })).stop();
    } finally {
      process.env["NODE_ENV"] = before;
    }
  });

  test("a paused member answers when it runs again; nothing waits or listens after stop()", async () => {
    const own = await startDevEtcd({ port: 0 });
    const [host, port] = own.hosts[0]!.split(":");
    const renew = [messages.LEASE_REQUEST, messages.LEASE_RESPONSE] as const;
    using renewing = converse("/etcdserverpb.Lease/LeaseKeepAlive", renew, own.hosts[0]);
    renewing.send({ leaseId: 1n });
    await expect.poll(() => renewing.answers).toHaveLength(1);

    await own.pause();
    renewing.send({ leaseId: 2n });
    await own.advance(50);
    expect(renewing.answers).toHaveLength(1);
    await own.resume();
    await expect.poll(() => renewing.answers).toHaveLength(2);
    const waiting = expect(own.advance(60_000)).rejects.toThrow("This etcd was stopped");
    await own.stop();

    await waiting;
    const [error] = (await once(net.connect(Number(port), host), "error")) as [Error];
    expect(error).toMatchObject({ code: "ECONNREFUSED" });
  });

  test("a member checks the token of each request once authentication is enabled", async () => {
    const auth = async <Request extends object>(method: string, kind: Message<Request>, asked: Request) => {
      const answer = await call(`/etcdserverpb.Auth/${method}`, encode(kind, asked));
      expect(answer.status).toBe("0");
      return decode(messages.TOKEN_RESPONSE, answer.bytes.subarray(5));
    };
    const root = { name: "root", password: "pw" };
    await auth("RoleAdd", messages.NAME_REQUEST, { name: "root" });
    await auth("UserAdd", messages.USER_REQUEST, root);
    await auth("UserGrantRole", messages.USER_ROLE_REQUEST, { name: "root", role: "root" });
    await auth("AuthEnable", messages.EMPTY, {});
    const { token } = await auth("Authenticate", messages.USER_REQUEST, root);
    const answers = await Promise.all([
      call(RANGE, framed(read("a"))),
      call(RANGE, framed(read("a")), { token: `${token}x` }),
      call("/etcdserverpb.Lease/LeaseLeases", framed(Buffer.alloc(0))),
      call(RANGE, framed(read("a")), { token }),
    ]);
    const disabled = await call("/etcdserverpb.Auth/AuthDisable", framed(Buffer.alloc(0)), { token });

    expect(answers.map(({ status }) => status)).toEqual(["3", "16", "3", "0"]);
    expect(disabled.status).toBe("0");
  });
});
