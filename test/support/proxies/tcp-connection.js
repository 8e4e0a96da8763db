// One proxied TCP connection: two lanes of bytes, each forwarded, kept or swallowed.
import net from "node:net";

/**
 * @typedef {"pass" | "pause" | "blackhole" | "refuse"} Mode
 *   pass: forward; pause: keep the bytes and deliver them on "pass"; blackhole: swallow the bytes of both
 *   directions and keep the sockets open; refuse: reset what is open and close the listener.
 * @typedef {"requests" | "answers"} Way requests: from the client to the target; answers: back.
 */

/** One direction of one connection, which keeps the order while modes change. */
class Lane {
  /** @type {{ chunk: Buffer | undefined, due: number }[]} an undefined chunk is the end of the stream */
  #queue = [];
  /** @type {NodeJS.Timeout | undefined} */
  #timer;
  #from;
  #to;
  #connection;
  #way;
  bytes = 0;

  /** @param {Connection} connection @param {Way} way @param {net.Socket} from @param {net.Socket} to */
  constructor(connection, way, from, to) {
    this.#connection = connection;
    this.#way = way;
    this.#from = from;
    this.#to = to;
    from.on("data", (chunk) => this.#take(chunk));
    from.on("end", () => this.#take(undefined));
    from.on("error", () => {});
    from.on("close", (failed) => this.#closed(failed));
  }

  /** @param {Buffer | undefined} chunk */
  #take(chunk) {
    this.bytes += chunk?.length ?? 0;
    if (chunk !== undefined && this.#way === "requests") this.#connection.heard(chunk);
    if (this.#connection.swallows(this.#way)) return void this.#connection.spoil();
    this.#queue.push({ chunk, due: performance.now() + this.#connection.delayMs[this.#way] });
    this.drain();
  }

  drain() {
    clearTimeout(this.#timer);
    let item;
    while (this.#connection.state === "pass" && (item = this.#queue[0]) !== undefined) {
      const wait = item.due - performance.now();
      if (wait > 0) {
        this.#timer = setTimeout(() => this.drain(), wait);
        return;
      }
      this.#queue.shift();
      if (this.#to.destroyed) continue;
      if (item.chunk) this.#to.write(item.chunk);
      else this.#to.end();
    }
    // A close that came while nothing was forwarded is passed on only now.
    if (this.#from.destroyed && this.#connection.state === "pass") this.#to.destroySoon();
  }

  /** @param {boolean} failed */
  #closed(failed) {
    if (this.#connection.swallows(this.#way)) return void this.#connection.spoil();
    if (failed && this.#connection.state === "pass") reset(this.#to);
    else this.drain();
  }

  discard() {
    clearTimeout(this.#timer);
    this.#queue = [];
  }
}

/** One client connection and the one to its backend. */
export class Connection {
  /** @type {Mode} */
  state = "pass";
  delayMs = { requests: 0, answers: 0 };
  /** @type {Way | undefined} */
  dropped;
  /** The client's first bytes: enough to identify it. */
  head = /** @type {Buffer} */ (Buffer.alloc(0));
  #lanes;
  #sockets;
  #onHead;
  #spoiled = false;

  /**
   * @param {net.Socket} client @param {net.Socket} server
   * @param {number} backend index of the target this connection was given
   * @param {(connection: Connection) => void} onHead called before the client's first bytes are forwarded
   */
  constructor(client, server, backend, onHead) {
    this.backend = backend;
    this.#onHead = onHead;
    this.#sockets = [client, server];
    client.setNoDelay(true);
    server.setNoDelay(true);
    this.#lanes = {
      requests: new Lane(this, "requests", client, server),
      answers: new Lane(this, "answers", server, client),
    };
  }

  get open() {
    return this.#sockets.some((socket) => !socket.destroyed);
  }
  get bytes() {
    return { requests: this.#lanes.requests.bytes, answers: this.#lanes.answers.bytes };
  }

  /** @param {Mode} mode */
  mode(mode) {
    this.state = mode;
    if (mode === "refuse") this.reset();
    if (mode === "blackhole") for (const lane of Object.values(this.#lanes)) lane.discard();
    if (mode !== "pass") return;
    this.#healed();
    for (const lane of Object.values(this.#lanes)) lane.drain();
  }
  /** @param {number} ms added to each way, or to `way` only @param {Way} [way] */
  delay(ms, way) {
    if (way !== "answers") this.delayMs.requests = ms;
    if (way !== "requests") this.delayMs.answers = ms;
  }
  /** @param {Way | undefined} way swallow this way only; undefined ends it */
  drop(way) {
    this.dropped = way;
    if (way === undefined) this.#healed();
  }
  reset() {
    for (const lane of Object.values(this.#lanes)) lane.discard();
    for (const socket of this.#sockets) reset(socket);
  }

  // A stream with a gap is useless to both sides: real TCP would have retransmitted the bytes.
  #healed() {
    if (this.#spoiled && this.state === "pass" && this.dropped === undefined) this.reset();
  }
  spoil() {
    this.#spoiled = true;
  }

  /** @param {Way} way */
  swallows(way) {
    return this.state === "blackhole" || this.dropped === way;
  }
  /** @param {Buffer} chunk */
  heard(chunk) {
    if (this.head.length > 0) return;
    this.head = chunk;
    this.#onHead(this);
  }
}

/**
 * As in `src/testing/link.ts`: Node.js never ends after a failed reset of a socket that is just sending its end.
 * @param {net.Socket} socket
 */
function reset(socket) {
  const isEnding = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
  if (isEnding) socket.destroy();
  else socket.resetAndDestroy();
}
