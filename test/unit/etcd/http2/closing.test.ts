import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { owned } from "../../../support/programs/owned.js";
import {
  answerFrames,
  CODES,
  dataFrame,
  goawayFrame,
  grpcMessage,
  pingFrame,
  responseFrame,
  SETTINGS,
  settingsFrame,
  startPeer,
  trailersFrame,
  windowFrame,
  type Http2Peer,
} from "../../../support/servers/http2-peer.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { OK, PeerClient, startPair } from "../../../support/fixtures/peer-calls.js";

const PROGRAM = new URL("../../../support/programs/http2-program.ts", import.meta.url).pathname;

describe("a retired connection", () => {
  test("ends its calls well, then sends GOAWAY and FIN", async () => {
    await using pair = await startPair();
    const stream = pair.client.stream();
    const streamId = await pair.connection.request();
    pair.client.channel.retire();
    pair.connection.send(answerFrames(pair.id, "answer"));
    expect(await pair.first.end).toEqual(OK);
    await pair.connection.barrier();
    expect(pair.connection.all("GOAWAY")).toEqual([]);
    pair.connection.send(responseFrame(streamId), dataFrame(streamId, grpcMessage("event")));
    pair.connection.send(trailersFrame(streamId));
    expect([await stream.end, stream.texts]).toEqual([OK, ["event"]]);
    expect(await pair.connection.goaway()).toBe(CODES.NO_ERROR);
    expect(await pair.connection.closed).toBe(true);
  });

  test("sends what its last call has left to send", async () => {
    await using pair = await startPair();
    pair.connection.send(answerFrames(pair.id, "answer"));
    await pair.first.end;
    const last = pair.client.call("the last");
    pair.client.channel.retire();
    const id = await pair.connection.request();
    expect((await pair.connection.body(id, 13)).toString("latin1", 5)).toBe("the last");
    last.cancel();
    await pair.connection.next("RST_STREAM");
    expect(await pair.connection.goaway()).toBe(CODES.NO_ERROR);
    expect(await pair.connection.closed).toBe(true);
  });

  test("is closed at once if it is idle", async () => {
    await using pair = await startPair();
    pair.connection.send(answerFrames(pair.id, "answer"));
    await pair.first.end;
    pair.client.channel.retire();
    expect(await pair.connection.goaway()).toBe(CODES.NO_ERROR);
    expect(await pair.connection.closed).toBe(true);
  });

  test("waits for the connection, if calls do", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port });
    const call = client.call();
    client.channel.retire();
    const connection = await peer.connection();
    connection.greet();
    connection.send(answerFrames(await connection.request(), "answer"));
    expect(await call.end).toEqual(OK);
    expect(await connection.goaway()).toBe(CODES.NO_ERROR);
  });

  test("is closed while it connects, if nobody waits for it", async () => {
    const closed: Promise<unknown>[] = [];
    // This server accepts, and says nothing.
    const raw = (socket: Socket): void => void closed.push(once(socket.resume(), "close"));
    await using peer = await startPeer({ raw });
    for (const [n, tls] of [undefined, {}].entries()) {
      const client = new PeerClient({ port: peer.port, tls });
      const call = client.call();
      while (closed.length === n) await settle();
      call.cancel();
      client.channel.retire();
      await closed[n];
    }
  });

  test("carries later calls while a call uses it, and then is closed", async () => {
    await using pair = await startPair();
    pair.client.channel.retire();
    for (const text of ["late", "later"]) {
      const late = pair.client.call(text);
      pair.connection.send(answerFrames(await pair.connection.request(), "answer"));
      expect(await late.end).toEqual(OK);
    }
    expect(pair.first.isOver).toBe(false);
    expect(pair.peer.connections).toHaveLength(1);
    pair.connection.send(answerFrames(pair.id, "answer"));
    expect(await pair.first.end).toEqual(OK);
    expect(await pair.connection.goaway()).toBe(CODES.NO_ERROR);
    expect(await pair.connection.closed).toBe(true);
  });

  test.each(["it is closed", "its peer leaves"])("opens a connection for a call after %s", async (what) => {
    await using pair = await startPair();
    pair.client.channel.retire();
    if (what === "its peer leaves") pair.connection.send(goawayFrame(pair.id, CODES.NO_ERROR));
    pair.connection.send(answerFrames(pair.id, "answer"));
    expect(await pair.first.end).toEqual(OK);
    const late = pair.client.call("late");
    const second = await pair.peer.connection(1);
    second.greet();
    second.send(answerFrames(await second.request(), "answer"));
    expect(await late.end).toEqual(OK);
    expect(await second.closed).toBe(true);
  });

  test("ignores what follows the end of its last call in the same packet", async () => {
    await using pair = await startPair();
    pair.client.channel.retire();
    pair.connection.send(answerFrames(pair.id, "answer"), pingFrame(), responseFrame(99));
    expect(await pair.first.end).toEqual(OK);
    expect(await pair.connection.goaway()).toBe(CODES.NO_ERROR);
    await pair.connection.closed;
  });

  test("is not kept open by a peer that does not read", async () => {
    await using pair = await startPair();
    const { connection, client } = pair;
    connection.send(
      settingsFrame([[SETTINGS.INITIAL_WINDOW_SIZE, 0x7fff_ffff]]),
      windowFrame(0, 0x7fff_0000),
    );
    await connection.barrier();
    connection.pause();
    const large = client.call(Buffer.alloc(32 * 1024 * 1024));
    while (!large.told.includes("sent")) await settle();
    await settle();
    pair.first.cancel();
    large.cancel();
    client.channel.retire();
    await settle();
    client.clock.advance(3001);
    connection.resume();
    await connection.closed;
    // The end of what was written has not arrived.
    expect(connection.bodySoFar(3).length).toBeLessThan(32 * 1024 * 1024);
    expect(connection.all("GOAWAY")).toEqual([]);
  });
});

describe("a lost connection", () => {
  test("that was idle is replaced by the next call", async () => {
    await using pair = await startPair();
    pair.connection.send(answerFrames(pair.id, "answer"));
    await pair.first.end;
    pair.connection.reset();
    await pair.connection.closed;
    for (let n = 0; n < 3; n++) await settle();
    const next = pair.client.call();
    const second = await pair.peer.connection(1);
    second.greet();
    second.send(answerFrames(await second.request(), "again"));
    expect([await next.end, next.texts]).toEqual([OK, ["again"]]);
  });

  test("that was in use reports its failure to later calls: nothing of them was sent", async () => {
    await using pair = await startPair();
    pair.connection.close();
    expect(await pair.first.end).toMatchObject({ failed: "lost", inDoubt: true });
    const later = pair.client.call();
    // Whoever starts a stream has not stored it yet.
    expect(later.told).toEqual([]);
    expect(await later.end).toMatchObject({ failed: "lost", inDoubt: false });
    const cancelled = pair.client.call();
    cancelled.cancel();
    await settle();
    expect(cancelled.told).toEqual([]);
    expect(pair.peer.connections).toHaveLength(1);
  });
});

describe("a process", () => {
  /** Runs the program with a mode, and returns its output once it has ended by itself. */
  async function run(peer: Http2Peer, mode: string): Promise<string> {
    const args = ["--import", "tsx", PROGRAM, String(peer.port), mode];
    const child = owned(spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] }));
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
    const [code] = (await once(child, "exit")) as [number | null];
    return `${output.trim()} ${code}`;
  }

  test.each(["retire", "idle"])("ends by itself when its connection is %s", async (mode) => {
    await using peer = await startPeer();
    const ended = run(peer, mode);
    const connection = await peer.connection();
    connection.greet();
    connection.send(answerFrames(await connection.request(), "answer"));
    expect(await ended).toBe("answer 0");
    await connection.closed;
    expect(connection.all("GOAWAY")).toHaveLength(mode === "retire" ? 1 : 0);
  });

  test("ends by itself when the only call to a silent peer is cancelled", async () => {
    await using peer = await startPeer({ raw: (socket) => void socket.resume() });
    expect(await run(peer, "cancel")).toBe("cancelled 0");
  });

  test("waits for its calls", async () => {
    await using peer = await startPeer();
    const ended = run(peer, "retire");
    const connection = await peer.connection();
    connection.greet();
    const id = await connection.request();
    await new Promise((resolve) => setTimeout(resolve, 300));
    connection.send(answerFrames(id, "late answer"));
    expect(await ended).toBe("late answer 0");
  });
});
