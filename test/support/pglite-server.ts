// PGlite behind PostgreSQL's protocol on a TCP port, so that programs use it by the client that they use in production.
// For statements of their own each: sessions share one backend, hence no transactions of several messages.
import { once } from "node:events";
import net, { type AddressInfo, type Socket } from "node:net";
import { PGlite } from "@electric-sql/pglite";

/** AuthenticationOk, then ReadyForQuery: whoever connects is let in. */
const WELCOME = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);
/** Simple queries, and the end of an extended one: messages that are followed by an answer. */
const ASKING = "QS";
const GOODBYE = "X";

export class PgliteServer {
  readonly #database = new PGlite();
  readonly #server = net.createServer((socket) => this.#serve(socket));
  readonly #sockets = new Set<Socket>();

  static async start(): Promise<PgliteServer> {
    const server = new PgliteServer();
    await server.#database.waitReady;
    server.#server.listen(0, "127.0.0.1");
    await once(server.#server, "listening");
    return server;
  }

  get url(): string {
    return `postgres://postgres@127.0.0.1:${(this.#server.address() as AddressInfo).port}/postgres`;
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#sockets.delete(socket));
    let rest = Buffer.alloc(0);
    let begun = false;
    let asked: Buffer[] = [];
    socket.on("data", (bytes) => {
      rest = Buffer.concat([rest, bytes]);
      for (let end = endOf(rest, begun); end <= rest.length; end = endOf(rest, begun)) {
        const message = rest.subarray(0, end);
        const type = begun ? String.fromCharCode(message[0]!) : "";
        rest = rest.subarray(end);
        if (!begun) socket.write(WELCOME);
        begun = true;
        if (type === GOODBYE) return void socket.end();
        if (type !== "") asked.push(message);
        if (!ASKING.includes(type) || type === "") continue;
        void this.#answer(socket, Buffer.concat(asked));
        asked = [];
      }
    });
  }

  /** The whole question at once: PGlite takes one after the other. */
  async #answer(socket: Socket, question: Buffer): Promise<void> {
    socket.write(await this.#database.execProtocolRaw(question));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await this.#database.close();
  }
}

/** Where the first message ends: a length of four bytes follows the type, which the very first message lacks. */
function endOf(bytes: Buffer, begun: boolean): number {
  const at = begun ? 1 : 0;
  return bytes.length < at + 4 ? Infinity : at + bytes.readInt32BE(at);
}
