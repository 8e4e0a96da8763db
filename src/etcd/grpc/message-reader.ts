import { StreamFailure } from "../http2/failure.js";

/** One byte that says whether the message is compressed, four for its length. */
const PREFIX_BYTES = 5;

/** etcd sends all values of a range in one message: 128 operations of 1.5 MiB each are possible. */
const MAX_MESSAGE_BYTES = 256 * 1024 * 1024;

/** Splits the DATA of one stream into length-prefixed gRPC messages, however the peer has cut it into frames. */
export class MessageReader {
  /** What has arrived of a message that is not complete yet. */
  #parts: Buffer[] = [];
  #bytes = 0;

  /** Whether the data ended inside a message. */
  get incomplete(): boolean {
    return this.#bytes > 0;
  }

  /** Calls `onMessage` for each complete message. @throws {StreamFailure} on data that is no sequence of messages. */
  read(data: Buffer, onMessage: (message: Buffer) => void): void {
    const rest = this.#bytes === 0 ? data : this.#joined(data);
    if (rest === undefined) return;
    let at = 0;
    while (rest.length - at >= PREFIX_BYTES) {
      const length = checkedLength(rest, at);
      const end = at + PREFIX_BYTES + length;
      if (end > rest.length) break;
      onMessage(rest.subarray(at + PREFIX_BYTES, end));
      at = end;
    }
    if (at < rest.length) this.#keep(rest.subarray(at));
  }

  /** Everything since the last complete message, once its first message is complete. */
  #joined(data: Buffer): Buffer | undefined {
    this.#parts.push(data);
    this.#bytes += data.length;
    if (this.#bytes >= PREFIX_BYTES) {
      const prefix = (this.#parts[0]?.length ?? 0) >= PREFIX_BYTES ? this.#parts[0] : this.#merge();
      const length = checkedLength(prefix ?? data, 0);
      if (this.#bytes < PREFIX_BYTES + length) return undefined;
    } else return undefined;
    const whole = this.#merge();
    this.#parts = [];
    this.#bytes = 0;
    return whole;
  }

  #merge(): Buffer {
    const whole = Buffer.concat(this.#parts);
    this.#parts = [whole];
    return whole;
  }

  #keep(rest: Buffer): void {
    this.#parts = [rest];
    this.#bytes = rest.length;
    if (rest.length >= PREFIX_BYTES) checkedLength(rest, 0);
  }
}

function checkedLength(bytes: Buffer, at: number): number {
  if (bytes[at] !== 0) throw new StreamFailure("protocol", "a compressed message, though nothing was agreed");
  const length = bytes.readUInt32BE(at + 1);
  if (length > MAX_MESSAGE_BYTES)
    throw new StreamFailure("protocol", `a message of ${length} bytes, more than ${MAX_MESSAGE_BYTES}`);
  return length;
}
