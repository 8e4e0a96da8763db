// PGlite behind PostgreSQL's protocol on a TCP port, so that programs use it with their production client. All
// connections share one session of PGlite: this suits single statements, not transactions of several.
import { once } from "node:events";
import net, { type AddressInfo, type Socket } from "node:net";
import { PGlite } from "@electric-sql/pglite";

/** The first message of a connection has no type. */
const STARTUP = "startup";
const TERMINATE = "X";
/** Query, and the Sync after the parts of a prepared statement, are answered. */
const ASKING = new Set(["Q", "S"]);
/** AuthenticationOk and ReadyForQuery. */
const WELCOME = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);

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
    const messages = new Messages();
    let question: Buffer[] = [];
    socket.on("data", (bytes) => {
      for (const { type, message } of messages.in(bytes)) {
        if (type === STARTUP) socket.write(WELCOME);
        else if (type === TERMINATE) socket.end();
        else question.push(message);
        if (!ASKING.has(type)) continue;
        void this.#answer(socket, Buffer.concat(question));
        question = [];
      }
    });
  }

  /** The complete request at once: PGlite processes one after the other. */
  async #answer(socket: Socket, question: Buffer): Promise<void> {
    socket.write(await this.#database.execProtocolRaw(question));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await this.#database.close();
  }
}

/** Splits the bytes of a connection into messages: a type, then a length of four bytes that includes itself. */
class Messages {
  #rest = Buffer.alloc(0);
  #begun = false;

  *in(bytes: Buffer): Generator<{ readonly type: string; readonly message: Buffer }> {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    for (let end = this.#end(); end <= this.#rest.length; end = this.#end()) {
      const message = this.#rest.subarray(0, end);
      this.#rest = this.#rest.subarray(end);
      yield { type: this.#begun ? String.fromCharCode(message[0]!) : STARTUP, message };
      this.#begun = true;
    }
  }

  #end(): number {
    const at = this.#begun ? 1 : 0;
    return this.#rest.length < at + 4 ? Infinity : at + this.#rest.readInt32BE(at);
  }
}
