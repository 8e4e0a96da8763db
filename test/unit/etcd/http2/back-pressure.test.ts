import { describe, expect, test } from "vitest";
import {
  answerFrames,
  grpcMessage,
  responseFrame,
  SETTINGS,
  settingsFrame,
  windowFrame,
} from "../../../support/servers/http2-peer.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { OK, startPair, type Pair, type RecordedCall } from "../../../support/fixtures/peer-calls.js";

const MIB = 1024 * 1024;

/** A peer whose windows are as large as can be, and that does not read: calls are sent until the socket accepts no more. */
async function stuffed(pair: Pair): Promise<RecordedCall[]> {
  const { connection, client } = pair;
  connection.send(settingsFrame([[SETTINGS.INITIAL_WINDOW_SIZE, 0x7fff_ffff]]), windowFrame(0, 0x7fff_0000));
  await connection.barrier();
  connection.pause();
  const calls: RecordedCall[] = [];
  do {
    calls.push(client.call(Buffer.alloc(MIB, "x")));
    await settle();
  } while (calls.at(-1)?.told.includes("sent"));
  return calls;
}

describe("a peer that does not read", () => {
  test("gets no further calls: they wait, and go on as the socket drains", async () => {
    await using pair = await startPair();
    const calls = await stuffed(pair);
    const more = pair.client.calls(100);
    await settle();
    expect(calls.length).toBeLessThan(40);
    expect(more.flatMap(({ told }) => told)).toEqual([]);
    pair.connection.resume();
    for (const call of [...calls, ...more]) {
      pair.connection.send(answerFrames(await pair.connection.request(), "answer"));
      expect(call.isOver).toBe(false);
    }
    for (const call of [...calls, ...more]) expect(await call.end).toEqual(OK);
  });

  test("gets urgent streams first once it reads: a new one, and a message on an open one", async () => {
    await using pair = await startPair();
    const open = pair.client.stream({ urgent: true });
    const openId = await pair.connection.request();
    const calls = await stuffed(pair);
    const waiting = pair.client.calls(3);
    const urgent = pair.client.stream({ urgent: true });
    open.write(grpcMessage("keepalive"));
    urgent.write(grpcMessage("keepalive"));
    pair.connection.resume();
    for (let n = 1; n < calls.length; n++) await pair.connection.request();
    // The last of the calls waited with the others.
    const id = await pair.connection.request();
    expect((await pair.connection.body(id, 14)).toString("latin1", 5)).toBe("keepalive");
    expect((await pair.connection.body(openId, 14)).toString("latin1", 5)).toBe("keepalive");
    expect(urgent.told).toEqual(["sent"]);
    await pair.connection.requests(waiting.length);
  });

  test("never learns of calls that were cancelled while they waited", async () => {
    await using pair = await startPair();
    const calls = await stuffed(pair);
    const cancelled = pair.client.calls(10);
    for (const call of [...cancelled, calls.at(-1)!]) call.cancel();
    const last = pair.client.call("the last");
    pair.connection.resume();
    for (let n = 1; n < calls.length; n++) await pair.connection.request();
    const id = await pair.connection.request();
    expect((await pair.connection.body(id, 13)).toString("latin1", 5)).toBe("the last");
    await pair.connection.barrier();
    expect(pair.connection.all("RST_STREAM")).toEqual([]);
    expect([cancelled.flatMap(({ told }) => told), last.told]).toEqual([[], ["sent"]]);
  });

  test("is still heard: answers arrive while requests wait", async () => {
    await using pair = await startPair();
    const calls = await stuffed(pair);
    pair.connection.send(answerFrames(pair.id, "answer"));
    expect(await pair.first.end).toEqual(OK);
    expect(calls.at(-1)?.told).toEqual([]);
  });

  test("fails the calls that wait as not processed when it is lost", async () => {
    await using pair = await startPair();
    const calls = await stuffed(pair);
    pair.connection.send(responseFrame(pair.id));
    pair.connection.reset();
    expect(await calls.at(-1)!.end).toMatchObject({ failed: "lost", inDoubt: false });
    expect(await calls[0]!.end).toMatchObject({ failed: "lost", inDoubt: true });
  });
});
