import type { lookup, LookupAddress } from "node:dns";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { rotated } from "../../../../src/etcd/http2/socket.js";
import {
  answerFrames,
  CODES,
  goawayFrame,
  SETTINGS,
  settingsFrame,
  startPeer,
  type Http2Peer,
} from "../../../support/servers/http2-peer.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { PeerClient, type End, says } from "../../../support/fixtures/peer-calls.js";

/** How a call to a server ends that does `raw` with the socket. */
async function endAt(raw: (socket: Socket) => void): Promise<End> {
  await using peer = await startPeer({ raw });
  return await new PeerClient({ port: peer.port }).call().end;
}

const TLS_ALERT = Buffer.from("15030300020246", "hex");
const SSH = Buffer.from("SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
const BAD_REQUEST = Buffer.from("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");

async function write(socket: Socket, pieces: readonly Buffer[]): Promise<void> {
  for (const piece of pieces) {
    socket.write(piece);
    await settle();
    await settle();
  }
}

const bytesOf = (bytes: Buffer): Buffer[] => [...bytes].map((byte) => Buffer.of(byte));

describe("a server that does not speak HTTP/2", () => {
  test.each([
    ["TLS", TLS_ALERT, true, /answers in TLS/],
    ["TLS, byte by byte", TLS_ALERT, false, /answers in TLS/],
    ["TLS, with more", Buffer.concat([TLS_ALERT, TLS_ALERT]), true, /TLS/],
    ["HTTP/1", BAD_REQUEST, true, /answers in HTTP\/1/],
    ["HTTP/1, byte by byte", BAD_REQUEST, false, /HTTP\/1/],
    ["SSH", SSH, true, /not speak HTTP\/2: it sent "SSH-2\.0-OpenSSH_9\.2p1 Debian"$/],
    ["SSH, byte by byte", SSH, false, /it sent "SSH-2/],
    ["a short text", Buffer.from("+OK\r\n"), true, /it sent "\+OK"$/],
    ["a long text", Buffer.from("220 ".padEnd(5000, "x")), true, /it sent "220 x{56}"$/],
    [
      "bytes that a log must not show",
      Buffer.from("J\0\0\0\n8.0\x1b[31m"),
      true,
      /it sent "J\\u0000[^\p{Cc}]*"$/u,
    ],
  ])("but %s: the call ends with the reason, and was not processed", async (_, bytes, whole, text) => {
    const end = await endAt((socket) => {
      socket.once("data", () => {
        void write(socket, whole ? [bytes] : bytesOf(bytes)).then(() => socket.end());
      });
    });
    expect(end).toEqual({ failed: "connecting", text: says(text), inDoubt: false });
  });

  test("and greets before it is greeted, as SSH does, and then says nothing", async () => {
    const end = await endAt((socket) => void socket.write(SSH));
    expect(end).toMatchObject({ failed: "connecting", text: says(/it sent "SSH-2/), inDoubt: false });
  });

  test("and sends part of a TLS alert and then nothing: the time limit says why", async () => {
    await using peer = await startPeer({
      raw: (socket) => void socket.once("data", () => socket.write(TLS_ALERT)),
    });
    const client = new PeerClient({ port: peer.port });
    const call = client.call();
    let arrived = false;
    void call.end.then(() => (arrived = true));
    while (!arrived) {
      await settle();
      client.clock.advance(100);
    }
    expect(await call.end).toMatchObject({
      failed: "connecting",
      text: says(/TLS/),
      inDoubt: false,
    });
  });

  test("but closes at once: it may have processed the call before", async () => {
    const end = await endAt((socket) => void socket.once("data", () => socket.end()));
    expect(end).toEqual({
      failed: "connecting",
      text: says(/closed .* TLS/),
      inDoubt: true,
    });
  });

  test("but resets at once: it may have processed the call before", async () => {
    const end = await endAt((socket) => void socket.once("data", () => socket.resetAndDestroy()));
    expect(end).toMatchObject({ failed: "connecting", inDoubt: true });
  });

  test("but stays silent: the call ends after connectTimeoutMs", async () => {
    let accepted = false;
    await using peer = await startPeer({ raw: () => (accepted = true) });
    const client = new PeerClient({ port: peer.port }, { connectTimeoutMs: 1000 });
    const call = client.call();
    while (!accepted) await settle();
    await settle();
    client.clock.advance(990);
    expect(call.isOver).toBe(false);
    client.clock.advance(20);
    expect(await call.end).toEqual({
      failed: "connecting",
      text: "no HTTP/2 from the member within 1000 ms",
      inDoubt: true,
    });
  });

  test("but begins with another frame than SETTINGS: it may have processed the call before", async () => {
    const end = await endAt((socket) => socket.write(answerFrames(1, "answer")));
    expect(end).toMatchObject({
      failed: "connecting",
      text: says(/does not begin with SETTINGS/),
      inDoubt: true,
    });
  });

  test.each([
    [
      "says why",
      CODES.ENHANCE_YOUR_CALM,
      { failed: "calm", text: "the member ends the connection: ENHANCE_YOUR_CALM, full" },
    ],
    ["ends", CODES.NO_ERROR, { failed: "left", text: "the member ends the connection: NO_ERROR, full" }],
  ])("but %s by a GOAWAY before its SETTINGS: the call ends with the reason", async (_, code, end) => {
    const goaway = goawayFrame(0, code, "full");
    expect(await endAt((socket) => void socket.once("data", () => socket.end(goaway)))).toEqual({
      ...end,
      inDoubt: false,
    });
  });

  test("but keeps the connection open after a GOAWAY: the time limit ends the call with its reason", async () => {
    const goaway = goawayFrame(1, CODES.INTERNAL, "full");
    await using peer = await startPeer({
      raw: (socket) => void socket.once("data", () => socket.write(goaway)),
    });
    const client = new PeerClient({ port: peer.port });
    const call = client.call();
    while (!call.isOver) {
      await settle();
      client.clock.advance(100);
    }
    expect(await call.end).toEqual({
      failed: "lost",
      text: "the member ends the connection: INTERNAL_ERROR, full",
      inDoubt: true,
    });
  });

  test.each([["SETTINGS that make no sense", settingsFrame([[SETTINGS.INITIAL_WINDOW_SIZE, 2 ** 32 - 1]])]])(
    "but begins with %s: it may have processed the call before",
    async (_, bytes) => {
      const end = await endAt((socket) => void socket.once("data", () => socket.write(bytes)));
      expect(end).toMatchObject({ failed: "connecting", inDoubt: true });
    },
  );
});

describe("an address", () => {
  test("where nobody listens: the call was not processed", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const end = await new PeerClient({ port }).call().end;
    expect(end).toMatchObject({
      failed: "connecting",
      text: says(/ECONNREFUSED/),
      inDoubt: false,
    });
  });

  test("that does not exist: the call was not processed", async () => {
    const end = await new PeerClient({ hostname: "no-such-host.invalid", port: 2379 }).call().end;
    expect(end).toMatchObject({
      failed: "connecting",
      text: says(/no-such-host/),
      inDoubt: false,
    });
  });

  test("that cannot be one fails the call, and nothing else", async () => {
    const client = new PeerClient({ port: 70_000 });
    expect(await client.call().end).toMatchObject({
      failed: "connecting",
      text: says(/70000/),
      inDoubt: false,
    });
    client.clock.advance(10_000);
  });
});

describe("a name with several addresses", () => {
  const ADDRESSES: readonly LookupAddress[] = [
    { address: "127.0.0.2", family: 4 },
    { address: "127.0.0.3", family: 4 },
    { address: "127.0.0.4", family: 4 },
  ];
  const resolve: typeof lookup = ((
    _: string,
    __: object,
    callback: (error: null, found: LookupAddress[]) => void,
  ) => callback(null, [...ADDRESSES])) as unknown as typeof lookup;

  /** The address that `net.connect` reaches on the connection with that turn. */
  async function reached(peer: Http2Peer, turn: number): Promise<string | undefined> {
    const socket = connect({ host: "etcd.example", port: peer.port, lookup: rotated(turn, resolve) });
    await once(socket, "connect");
    const { remoteAddress } = socket;
    socket.destroy();
    return remoteAddress;
  }

  test("is reached at another one with each turn", async () => {
    await using peer = await startPeer({ host: "0.0.0.0" });
    const seen = [];
    for (let turn = 0; turn < 4; turn++) seen.push(await reached(peer, turn));
    expect(seen).toEqual(["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.2"]);
  });

  test("is reached at the one where a server listens, whichever is tried first", async () => {
    await using peer = await startPeer({ host: "127.0.0.3" });
    const seen = [];
    for (let turn = 0; turn < 3; turn++) seen.push(await reached(peer, turn));
    expect(seen).toEqual(["127.0.0.3", "127.0.0.3", "127.0.0.3"]);
  });
});
