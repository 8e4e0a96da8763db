// Terminates TLS in front of a server without TLS, with a certificate that can be replaced at run time.
import { once } from "node:events";
import net from "node:net";
import { pipeline } from "node:stream";
import tls from "node:tls";

/** @typedef {import("../fixtures/certificates.js").Pair} Pair */

export class TlsFront {
  #server;
  /** @type {Set<import("node:net").Socket>} */
  #open = new Set();
  port = 0;

  /** @param {() => number} target port on loopback @param {Pair} pair */
  constructor(target, { certificate, key }) {
    this.#server = tls.createServer({ cert: certificate, key, ALPNProtocols: ["h2"] });
    // A client that does not accept the certificate hangs up.
    this.#server.on("tlsClientError", () => {});
    this.#server.on("connection", (/** @type {import("node:net").Socket} */ raw) => {
      this.#open.add(raw);
      raw.once("close", () => this.#open.delete(raw));
    });
    this.#server.on("secureConnection", (client) => {
      const backend = net.connect({ host: "127.0.0.1", port: target() });
      pipeline(client, backend, client, () => {});
    });
  }

  async listen() {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.port = /** @type {import("node:net").AddressInfo} */ (this.#server.address()).port;
  }

  /** For new connections. @param {Pair} pair */
  show({ certificate, key }) {
    this.#server.setSecureContext({ cert: certificate, key });
  }

  /** Destroys open connections. */
  cut() {
    for (const socket of this.#open) socket.destroy();
  }

  async stop() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.cut();
    await closed;
  }
  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

/** @param {() => number} target @param {Pair} pair */
export async function startTlsFront(target, pair) {
  const front = new TlsFront(target, pair);
  await front.listen();
  return front;
}
