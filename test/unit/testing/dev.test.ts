// What any program may send to the port of `startDevEtcd`.
import { once } from "node:events";
import { connect as http2 } from "node:http2";
import net from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decode, encode, type Message } from "../../../src/testing/grpc/codec.js";
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
  { part = 60_000, ...headers }: { part?: number; "grpc-encoding"?: string } = {},
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

describe("startDevEtcd", () => {
  test("v3lock gives a lock to one lease after the other, and takes a waiter that has left out of the queue", async () => {
    const [name, lock] = [Buffer.from("v3"), [messages.LOCK_REQUEST, messages.KEY_RESPONSE] as const];
    const locking = () => ask("/v3lockpb.Lock/Lock", lock, { name, leaseId: 0n });
    const unlock = (key: Buffer) =>
      ask("/v3lockpb.Lock/Unlock", [messages.KEY_REQUEST, messages.HEADER_ONLY], { key });
    const places = (count: number) => expect.poll(() => etcd.keys("v3/")).toHaveLength(count);
    const first = await locking();
    const session = http2(`http://${etcd.hosts[0]}`);
    const leaving = session.request({
      ...{ ":method": "POST", ":path": "/v3lockpb.Lock/Lock", "content-type": "application/grpc" },
    });
    leaving.on("error", () => {});
    leaving.end(encode(messages.LOCK_REQUEST, { name, leaseId: 0n }));
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
    const campaign = [messages.CAMPAIGN_REQUEST, messages.CAMPAIGN_RESPONSE] as const;
    const campaigns = (value: string) =>
      ask(path("Campaign"), campaign, { name, leaseId: 0n, value: Buffer.from(value) });
    const leader = async () =>
      (
        await ask(path("Leader"), [messages.NAMED_REQUEST, messages.LEADER_RESPONSE], { name })
      ).kv.value.toString();
    await expect(leader()).rejects.toThrow("election: no leader");
    const first = await campaigns("a");
    const second = campaigns("b");
    await expect.poll(() => etcd.keys("v3e/")).toHaveLength(2);
    const proclaim = [messages.PROCLAIM_REQUEST, messages.HEADER_ONLY] as const;
    await ask(path("Proclaim"), proclaim, { leader: first.leader, value: Buffer.from("a2") });
    expect(await leader()).toBe("a2");

    const resign = [messages.RESIGN_REQUEST, messages.HEADER_ONLY] as const;
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
    ]);

    expect(calls.map(({ status }) => status)).toEqual(["12", "12", "12", "13", "13", "13", "3"]);
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
    expect(await call(PUT, put(3 * MiB))).toMatchObject({ status: "8" });
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
});
