import type { Http2Stream } from "./stream.js";

/**
 * How much the peer may send: RFC 9113, section 6.9. Data is consumed as it arrives, so a window is opened again once half
 * of it is used; answers that are shorter than that need no update of their stream's window. A peer that ignores its windows
 * gains nothing: what bounds the memory are the limits of a message and of all messages of a connection.
 */
export class ReceiveWindows {
  static readonly INITIAL_BYTES = 65_535;
  static readonly STREAM_BYTES = 4 * 1024 * 1024;
  static readonly CONNECTION_BYTES = 16 * 1024 * 1024;
  #used = 0;

  constructor(private readonly update: (streamId: number, bytes: number) => void) {}

  /** `stream` is `undefined` if it is over. */
  received(stream: Http2Stream | undefined, bytes: number, endStream: boolean): void {
    this.#used += bytes;
    if (this.#used > ReceiveWindows.CONNECTION_BYTES / 2) {
      this.update(0, this.#used);
      this.#used = 0;
    }
    if (stream === undefined || endStream) return;
    stream.received += bytes;
    if (stream.received <= ReceiveWindows.STREAM_BYTES / 2) return;
    this.update(stream.id, stream.received);
    stream.received = 0;
  }
}
