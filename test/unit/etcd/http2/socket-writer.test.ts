import type { Socket } from "node:net";
import { beforeEach, describe, expect, test } from "vitest";
import { Timers } from "../../../../src/base/util/timers.js";
import { SocketWriter } from "../../../../src/etcd/http2/socket.js";
import { FakeClock, settle } from "../../../support/fakes/fake-clock.js";

describe("what is written late", () => {
  const LATE_MS = 100;
  let clock: FakeClock;
  let written: string[];
  let socket: { writableEnded: boolean; destroyed: boolean };
  let writer: SocketWriter;

  beforeEach(() => {
    clock = new FakeClock();
    written = [];
    const write = (bytes: Buffer) => (written.push(bytes.toString()), true);
    socket = Object.assign({ writableEnded: false, destroyed: false }, { write, on: () => {} });
    writer = new SocketWriter(socket as unknown as Socket, new Timers(clock), () => {});
  });

  test("leaves by itself, and not with what is written before", async () => {
    writer.writeLate(Buffer.from("late"));
    writer.write(Buffer.from("now"));
    await settle();
    expect(written).toEqual(["now"]);
    await clock.pass(LATE_MS + 1);
    await settle();
    expect(written).toEqual(["now", "late"]);
  });

  test("is dropped when the socket has been ended: a write would cut off what it still sends", async () => {
    writer.writeLate(Buffer.from("late"));
    socket.writableEnded = true;
    await clock.pass(LATE_MS + 1);
    await settle();
    expect(written).toEqual([]);
  });
});
