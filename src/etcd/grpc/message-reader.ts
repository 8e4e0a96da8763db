import { StreamFailure } from "../http2/failure.js";

/** One byte that says whether the message is compressed, four for its length. */
const PREFIX_BYTES = 5;

/** etcd sends all values of a range in one message: 128 operations of 1.5 MiB each are possible. */
const MAX_MESSAGE_BYTES = 256 * 1024 * 1024;

const NO_BYTES = Buffer.alloc(0);

/** Splits the DATA of one stream into length-prefixed gRPC messages, however the peer has cut it into frames. */
export class MessageReader {
  /** Memory for a message that is not complete: its first `#bytes` bytes have arrived. */
  #kept: Buffer = NO_BYTES;
  #bytes = 0;

  constructor(private readonly maxBytes: number = MAX_MESSAGE_BYTES) {}

  /** How much memory the message has that is not complete. */
  get keptBytes(): number {
    return this.#kept.length;
  }

  /** Whether the data ended inside a message. */
  get incomplete(): boolean {
    return this.#bytes > 0;
  }

  /** Calls `onMessage` for each complete message. @throws {StreamFailure} on data that is no sequence of messages. */
  read(data: Buffer, onMessage: (message: Buffer) => void): void {
    let at = this.#bytes === 0 ? 0 : this.#complete(data, onMessage);
    while (data.length - at >= PREFIX_BYTES) {
      const end = at + PREFIX_BYTES + this.#lengthAt(data, at);
      if (end > data.length) break;
      onMessage(data.subarray(at + PREFIX_BYTES, end));
      at = end;
    }
    if (at < data.length) this.#keep(data, at, data.length);
  }

  /** Continues the message that is kept, and returns where the next one begins in `data`. */
  #complete(data: Buffer, onMessage: (message: Buffer) => void): number {
    let at = 0;
    if (this.#bytes < PREFIX_BYTES) at = this.#keep(data, 0, PREFIX_BYTES - this.#bytes);
    if (this.#bytes < PREFIX_BYTES) return at;
    const whole = PREFIX_BYTES + this.#lengthAt(this.#kept, 0);
    at = this.#keep(data, at, at + whole - this.#bytes);
    if (this.#bytes < whole) return at;
    const message = this.#kept.subarray(PREFIX_BYTES, whole);
    this.#kept = NO_BYTES;
    this.#bytes = 0;
    onMessage(message);
    return at;
  }

  /** Copies `data` up to `end`, or as far as it goes, and returns where that is. The peer may announce more than it sends. */
  #keep(data: Buffer, start: number, end: number): number {
    const stop = Math.min(end, data.length);
    const needed = this.#bytes + stop - start;
    const whole = this.#bytes + end - start;
    if (needed > this.#kept.length) this.#grow(Math.max(needed, Math.min(whole, 2 * this.#kept.length)));
    data.copy(this.#kept, this.#bytes, start, stop);
    this.#bytes = needed;
    return stop;
  }

  #grow(size: number): void {
    const larger = Buffer.allocUnsafe(size);
    this.#kept.copy(larger, 0, 0, this.#bytes);
    this.#kept = larger;
  }

  #lengthAt(bytes: Buffer, at: number): number {
    if (bytes[at] !== 0)
      throw new StreamFailure("protocol", "a compressed message, though nothing was agreed");
    const length = bytes.readUInt32BE(at + 1);
    if (length > this.maxBytes)
      throw new StreamFailure("protocol", `a message of ${length} bytes, more than ${this.maxBytes}`);
    return length;
  }
}
