import type { ServerResponse } from "node:http";
import type { Clock } from "../../base/util/clock.js";

/** A reader that takes nothing for so long is gone, or as good as gone. */
const MAX_STALL_MS = 30_000;
/** Proxies end connections on which nothing happens, often after 60 s. */
const HEARTBEAT_MS = 15_000;

export const encodeEvent = (event: string, json: string): Buffer =>
  Buffer.from(`event: ${event}\ndata: ${json}\n\n`);

/** A response of server-sent events. At most one event is buffered beyond what the socket takes: callers ask `ready`. */
export class EventStream {
  readonly #close = new Set<() => void>();
  #writtenMs: number;
  #full = false;
  #closed = false;

  constructor(
    private readonly response: ServerResponse,
    private readonly clock: Clock,
  ) {
    this.#writtenMs = clock.monotonic();
    response.on("close", () => this.#ended());
    response.on("error", () => this.#ended());
    response.on("drain", () => (this.#full = false));
    // nginx buffers a response without this header.
    response.writeHead(200, {
      "Content-Type": "text/event-stream; charset=utf-8",
      "X-Accel-Buffering": "no",
    });
    response.flushHeaders();
  }

  /** Whether the reader has taken all that was sent. */
  get ready(): boolean {
    return !this.#closed && !this.#full;
  }

  onClose(run: () => void): void {
    if (this.#closed) run();
    else this.#close.add(run);
  }

  /** Calls `run` whenever the reader has taken what was sent. */
  onDrain(run: () => void): void {
    this.response.on("drain", run);
  }

  send(event: string, json: string): void {
    this.sendEncoded(encodeEvent(event, json));
  }

  /** Many streams may share the buffer. */
  sendEncoded(event: Buffer | string): void {
    if (this.#closed) return;
    this.#writtenMs = this.clock.monotonic();
    // The response of HTTP/2 has no `writableNeedDrain`.
    this.#full = this.response.write(event) === false;
  }

  /** Called now and then: keeps an idle stream open, and ends one whose reader has stalled. */
  check(): void {
    const idleMs = this.clock.monotonic() - this.#writtenMs;
    if (!this.ready && idleMs > MAX_STALL_MS) this.close();
    else if (this.ready && idleMs > HEARTBEAT_MS) this.sendEncoded(":\n\n");
  }

  close(): void {
    this.response.destroy();
    this.#ended();
  }

  #ended(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const run of this.#close) run();
  }
}
