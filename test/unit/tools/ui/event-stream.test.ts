// A stream whose reader is slow, gone or silent, on a clock that the test moves.
import { EventEmitter } from "node:events";
import type { ServerResponse } from "node:http";
import { describe, expect, test } from "vitest";
import type { Clock } from "../../../../src/base/util/clock.js";
import { EventStream } from "../../../../src/tools/ui/event-stream.js";

class Response extends EventEmitter {
  /** Whether the reader takes what is written. */
  takes = true;
  written = "";
  destroyed = false;
  writeHead(): void {}
  flushHeaders(): void {}
  write(text: string | Buffer): boolean {
    this.written += text.toString();
    return this.takes;
  }
  destroy(): void {
    this.destroyed = true;
  }
}

function scene() {
  let ms = 0;
  const response = new Response();
  const clock = { monotonic: () => ms } as unknown as Clock;
  const stream = new EventStream(response as unknown as ServerResponse, clock);
  let closed = 0;
  stream.onClose(() => closed++);
  return { stream, response, pass: (more: number) => (ms += more), closed: () => closed };
}

describe("a stream", () => {
  test("that is idle is kept open by comments", () => {
    const { stream, response, pass } = scene();
    stream.send("full", "{}");
    pass(14_000);
    stream.check();
    expect(response.written).toBe("event: full\ndata: {}\n\n");
    pass(2000);
    stream.check();
    expect(response.written).toBe("event: full\ndata: {}\n\n:\n\n");
  });

  test("whose reader takes nothing for half a minute is dropped, once", () => {
    const { stream, response, pass, closed } = scene();
    response.takes = false;
    stream.send("full", "{}");
    pass(29_000);
    stream.check();
    expect([stream.ready, response.destroyed]).toEqual([false, false]);
    pass(2000);
    stream.check();
    response.emit("close");

    expect([response.destroyed, closed()]).toEqual([true, 1]);
  });

  test("whose reader takes what was sent within half a minute, each time, goes on", () => {
    const { stream, response, pass } = scene();
    response.takes = false;
    let taken = 0;
    stream.onDrain(() => taken++);
    for (let n = 0; n < 5; n++) {
      stream.send("change", "{}");
      pass(29_000);
      stream.check();
      expect(stream.ready).toBe(false);
      response.emit("drain");
      expect(stream.ready).toBe(true);
    }

    expect([taken, response.destroyed]).toEqual([5, false]);
  });

  test("whose reader is gone writes nothing more", () => {
    const { stream, response, closed } = scene();
    response.emit("close");
    stream.send("change", "{}");

    expect([stream.ready, response.written, closed()]).toEqual([false, "", 1]);
    let late = 0;
    stream.onClose(() => late++);
    expect(late).toBe(1);
  });
});
