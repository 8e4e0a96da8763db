import type { Deadlines } from "../../async/deadlines.js";
import { inOwnContext } from "../../async/own-context.js";
import type { ClientSocket } from "./socket.js";

const CHUNK_BYTES = 32 * 1024;
/** A longer piece is not copied into the chunk. */
const COPIED_BYTES = 4096;
/**
 * Go's gRPC servers estimate the bandwidth: with a request they send a PING and a WINDOW_UPDATE, unless their last PING is
 * still unanswered. So a late answer saves a client that makes one call after the other a write and a read for each call.
 * It is early enough for the keepalive of any server: those allow seconds.
 */
const LATE_MS = 100;
/** More bytes than this do not wait. */
const LATE_BYTES = 1024;
/** The client itself causes fewer: this is 70,000 resets, for example. */
const MAX_BACKLOG_BYTES = 1024 * 1024;

/**
 * Collects what is written during one turn of the event loop, and hands it to the socket at once: calls that are made
 * together leave in one packet.
 */
export class SocketWriter {
  /** The buffer of the socket is full: the caller writes only what cannot wait. */
  blocked = false;
  /** Bytes written since the socket is blocked: answers to what the peer sends, and resets. */
  #backlog = 0;
  #chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  /** `#chunk` from here to `#end` is not in `#parts` yet. */
  #start = 0;
  #end = 0;
  #parts: Buffer[] = [];
  #scheduled = false;
  /** Written after `LATE_MS`. */
  #late: Buffer[] = [];
  #keepsAlive = true;

  constructor(
    private readonly socket: ClientSocket,
    private readonly deadlines: Deadlines,
    onDrain: () => void,
  ) {
    socket.on("drain", () => {
      this.blocked = false;
      this.#backlog = 0;
      onDrain();
    });
  }

  /** A peer that sends and does not read makes its answers pile up here. */
  get overfull(): boolean {
    return this.#backlog > MAX_BACKLOG_BYTES;
  }

  write(bytes: Buffer): void {
    this.#append(bytes);
    if (this.#scheduled) return;
    this.#scheduled = true;
    process.nextTick(() => this.flush());
  }

  /** Sends `bytes` after `LATE_MS`: no call waits for them. */
  writeLate(bytes: Buffer): void {
    this.#late.push(bytes);
    if (this.#late.length * bytes.length > LATE_BYTES) return this.#writeLateNow();
    if (this.#late.length === 1) this.deadlines.add(LATE_MS, () => this.#writeLateNow());
  }

  /** Whether the socket, which is connected, keeps the process alive. It does at first. */
  keepAlive(inUse: boolean): void {
    if (inUse === this.#keepsAlive) return;
    this.#keepsAlive = inUse;
    if (inUse) this.socket.ref();
    else this.socket.unref();
  }

  #writeLateNow(): void {
    const late = this.#late;
    this.#late = [];
    if (this.socket.writableEnded) return;
    for (const bytes of late) this.write(bytes);
  }

  #append(bytes: Buffer): void {
    if (this.blocked) this.#backlog += bytes.length;
    if (bytes.length > COPIED_BYTES) {
      this.#cut();
      this.#parts.push(bytes);
    } else {
      if (this.#end + bytes.length > CHUNK_BYTES) this.#nextChunk();
      bytes.copy(this.#chunk, this.#end);
      this.#end += bytes.length;
    }
  }

  #cut(): void {
    if (this.#end > this.#start) this.#parts.push(this.#chunk.subarray(this.#start, this.#end));
    this.#start = this.#end;
  }

  #nextChunk(): void {
    this.#cut();
    this.#chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    this.#start = this.#end = 0;
  }

  /** Hands to the socket what was written; otherwise that happens at the end of this turn. */
  flush(): void {
    this.#scheduled = false;
    this.#cut();
    const parts = this.#parts;
    this.#parts = [];
    if (this.socket.destroyed || parts.length === 0) return;
    // The end of a write, which may be that of the connection, is reported in the context of the write.
    this.blocked = !inOwnContext(() => this.#send(parts));
  }

  #send(parts: readonly Buffer[]): boolean {
    let accepted = true;
    if (parts.length > 1) this.socket.cork();
    for (const part of parts) accepted = this.socket.write(part);
    if (parts.length > 1) this.socket.uncork();
    return accepted;
  }
}
