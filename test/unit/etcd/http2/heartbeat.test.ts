import { describe, expect, test } from "vitest";
import {
  answerFrames,
  FLAGS,
  frame,
  SETTINGS,
  settingsFrame,
  startPeer,
} from "../../../support/servers/http2-peer.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { OK, PeerClient, startPair, says } from "../../../support/fixtures/peer-calls.js";

const INTERVAL = 5000;
const TIMEOUT = 3000;
const pings = (pair: { connection: { all(type: "PING"): readonly { readonly flags: number }[] } }): number =>
  pair.connection.all("PING").filter(({ flags }) => flags !== FLAGS.ACK).length;

/** Runs as a timer of Node.js does: before the sockets are read. */
const inTimersPhase = (run: () => void): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(() => {
      run();
      resolve();
    }, 0);
  });

describe("the heartbeat of a connection", () => {
  test("a peer that answers pings keeps the connection", async () => {
    await using pair = await startPair();
    for (let n = 1; n <= 3; n++) {
      pair.client.clock.advance(INTERVAL + 2);
      const { payload } = await pair.connection.next("PING");
      pair.connection.send(frame("PING", 0, { flags: FLAGS.ACK, payload }));
      // Our answer to the peer's own ping would count as traffic of the client, not of the peer.
      await pair.connection.barrier();
      expect(pings(pair)).toBe(n);
    }
    pair.connection.send(answerFrames(pair.id, "answer"));
    expect(await pair.first.end).toEqual(OK);
  });

  test("a silent peer loses the connection after the interval and the timeout", async () => {
    await using pair = await startPair();
    pair.client.clock.advance(INTERVAL + 1);
    await pair.connection.next("PING");
    pair.client.clock.advance(TIMEOUT - 10);
    await settle();
    expect(pair.first.isOver).toBe(false);
    pair.client.clock.advance(20);
    expect(await pair.first.end).toMatchObject({
      failed: "lost",
      text: says(/ping/),
      inDoubt: true,
    });
    await pair.connection.closed;
  });

  test("an answer that has already arrived when the time is over counts: the process was busy, not the peer silent", async () => {
    await using pair = await startPair();
    pair.client.clock.advance(INTERVAL + 1);
    const { payload } = await pair.connection.next("PING");
    await inTimersPhase(() => {
      // Written to the kernel: the client has not read it when its timer runs.
      pair.connection.send(frame("PING", 0, { flags: FLAGS.ACK, payload }));
      pair.client.clock.advance(TIMEOUT + 10);
    });
    pair.connection.send(answerFrames(pair.id, "answer"));
    expect(await pair.first.end).toEqual(OK);
  });

  test("while something arrives nothing is pinged", async () => {
    await using pair = await startPair();
    for (let n = 0; n < 5; n++) {
      pair.client.clock.advance(INTERVAL - 100);
      await pair.connection.barrier();
    }
    expect(pings(pair)).toBe(0);
  });

  test("an idle connection pings nothing, and its next call begins a new interval", async () => {
    await using pair = await startPair();
    pair.connection.send(answerFrames(pair.id, "answer"));
    await pair.first.end;
    pair.client.clock.advance(10 * INTERVAL);
    const next = pair.client.call();
    const id = await pair.connection.request();
    pair.client.clock.advance(INTERVAL - 100);
    expect(pings(pair)).toBe(0);
    pair.client.clock.advance(200);
    await pair.connection.next("PING");
    pair.connection.send(answerFrames(id, "answer"));
    expect(await next.end).toEqual(OK);
  });

  test("a stream that waited longer than an interval for the connection is guarded, too", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port }, { connectTimeoutMs: 60_000 });
    const stream = client.stream();
    const connection = await peer.connection();
    client.clock.advance(3 * INTERVAL);
    connection.greet();
    await connection.request();
    client.clock.advance(INTERVAL + 2);
    await connection.next("PING");
    client.clock.advance(TIMEOUT + 1);
    expect(await stream.end).toMatchObject({ failed: "lost" });
  });

  test("a stream that waited for the peer's permission is guarded, too", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port });
    const first = client.stream();
    const connection = await peer.connection();
    await connection.request();
    connection.greet([[SETTINGS.MAX_CONCURRENT_STREAMS, 0]]);
    await connection.barrier();
    const stream = client.stream();
    first.cancel();
    await connection.barrier();
    client.clock.advance(3 * INTERVAL);
    expect(connection.all("PING").filter(({ flags }) => flags !== FLAGS.ACK)).toEqual([]);
    connection.send(settingsFrame([[SETTINGS.MAX_CONCURRENT_STREAMS, 1]]));
    await connection.request();
    client.clock.advance(INTERVAL + 2);
    await connection.next("PING");
    expect(stream.isOver).toBe(false);
  });

  test("a ping that was unanswered when its calls were cancelled does not shorten the time of the next call", async () => {
    await using pair = await startPair();
    pair.client.clock.advance(INTERVAL + 1);
    await pair.connection.next("PING");
    pair.first.cancel();
    pair.client.clock.advance(TIMEOUT + 1);
    const next = pair.client.call();
    await pair.connection.request();
    pair.client.clock.advance(INTERVAL + 2);
    await pair.connection.next("PING");
    await settle();
    expect(next.isOver).toBe(false);
  });

  test("a connection that is over leaves no timer", async () => {
    await using pair = await startPair();
    pair.connection.reset();
    await pair.first.end;
    pair.client.clock.advance(10 * (INTERVAL + TIMEOUT));
    expect(pair.client.clock.timers).toBe(0);
  });
});
