import { once } from "node:events";
import net from "node:net";

const FRAME_HEADER_BYTES = 9;
/** The type of a client's first TLS record. */
const TLS_HANDSHAKE = 22;
/** DATA and HEADERS: requests, and messages on streams. Settings, pings and windows travel for themselves. */
const REQUESTS: readonly number[] = [0, 1];
/** What a side sends within so many milliseconds of silence on both sides belongs to one flight. */
const QUIET_MS = 30;

interface Sent {
  readonly bytes: Buffer;
  readonly at: number;
}

/** Whether frames that a client has sent contain a request. */
function hasRequest(bytes: Buffer): boolean {
  for (let at = 0; at + FRAME_HEADER_BYTES <= bytes.length;) {
    if (REQUESTS.includes(bytes.readUInt8(at + 3))) return true;
    at += FRAME_HEADER_BYTES + bytes.readUIntBE(at, 3);
  }
  return false;
}

/**
 * A TCP proxy that passes on what one side has said only when both have fallen silent, as a long way between them does: requests
 * arrive as far apart as they were sent. The flights of a client that has sent nothing in vain are its round trips.
 */
export class FlightMeter implements AsyncDisposable {
  /**
   * The flights of all clients that contained a request, and the first of each connection: a request may wait for its answer. Over TLS,
   * all flights: nobody can see what is in them.
   */
  flights = 0;
  readonly #sockets = new Set<net.Socket>();
  readonly #server: net.Server;

  private constructor(target: number) {
    this.#server = net.createServer((client) => this.#accept(client, target));
  }

  /** In front of that port of this machine. */
  static async start(target: number): Promise<FlightMeter> {
    const meter = new FlightMeter(target);
    meter.#server.listen(0, "127.0.0.1");
    await once(meter.#server, "listening");
    return meter;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }

  #accept(client: net.Socket, target: number): void {
    const upstream = net.connect(target, "127.0.0.1");
    const requests: Sent[] = [];
    const answers: Sent[] = [];
    let first = true;
    let sealed = false;
    let timer: NodeJS.Timeout | undefined;
    const pass = (): void => {
      const sent = requests.splice(0);
      const all = Buffer.concat(sent.map(({ bytes }) => bytes));
      if (first) sealed = all[0] === TLS_HANDSHAKE;
      if (all.length > 0 && (first || sealed || hasRequest(all))) this.flights++;
      if (sent.length > 0) first = false;
      for (const { bytes, at } of sent) setTimeout(() => upstream.write(bytes), at - sent[0]!.at);
      for (const { bytes } of answers.splice(0)) client.write(bytes);
    };
    const wait = (bytes: Buffer, to: Sent[]): void => {
      to.push({ bytes, at: performance.now() });
      clearTimeout(timer);
      timer = setTimeout(pass, QUIET_MS);
    };
    client.on("data", (bytes: Buffer) => wait(bytes, requests));
    upstream.on("data", (bytes: Buffer) => wait(bytes, answers));
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      this.#sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        this.#sockets.delete(socket);
        clearTimeout(timer);
        pass();
        other.end();
      });
    }
  }
}
