// A TCP proxy that can misbehave: in front of one target, or at one address that spreads new connections over several.
import { EventEmitter, once } from "node:events";
import net from "node:net";
import { Connection } from "./tcp-connection.js";

/**
 * @typedef {{ host?: string, port: number }} Target
 * @typedef {Target | (() => Target)} TargetSource
 * @typedef {import("./tcp-connection.js").Mode} Mode
 * @typedef {import("./tcp-connection.js").Way} Way
 */

/** @typedef {(connection: Connection) => boolean} Which */

export class TcpProxy {
  #events = new EventEmitter();
  #server;
  #targets;
  /** @type {Connection[]} */
  #all = [];
  #settings = {
    mode: /** @type {Mode} */ ("pass"),
    delay: { ms: 0, way: /** @type {Way | undefined} */ (undefined) },
    drop: /** @type {Way | undefined} */ (undefined),
  };
  /** @type {Map<Which, Mode>} */
  #rules = new Map();
  /** Open while the port has no listener. @type {net.Socket | undefined} */
  #keeper;
  port = 0;

  /** @param {TargetSource[]} targets */
  constructor(targets) {
    this.#targets = targets;
    this.#events.setMaxListeners(0);
    this.#server = net.createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket));
  }

  get endpoint() {
    return `http://127.0.0.1:${this.port}`;
  }
  /** Open ones, oldest first. */
  get connections() {
    return this.#all.filter((connection) => connection.open);
  }
  /** The total number of accepted connections. */
  get accepted() {
    return this.#all.length;
  }

  async listen(port = this.port) {
    this.#server.listen(port, "127.0.0.1");
    await once(this.#server, "listening");
    this.port = /** @type {net.AddressInfo} */ (this.#server.address()).port;
  }

  /** @param {net.Socket} client */
  #accept(client) {
    if (this.#keeper && client.remotePort === this.#keeper.localPort) return this.#keepPort(client);
    const backend = this.#all.length % this.#targets.length;
    const source = /** @type {TargetSource} */ (this.#targets[backend]);
    const { host = "127.0.0.1", port } = typeof source === "function" ? source() : source;
    const server = net.connect({ host, port, allowHalfOpen: true });
    const connection = new Connection(client, server, backend, (it) => this.#judge(it));
    this.#all.push(connection);
    connection.delay(this.#settings.delay.ms, this.#settings.delay.way);
    connection.drop(this.#settings.drop);
    connection.mode(this.#settings.mode);
  }

  /** @param {Connection} connection */
  #judge(connection) {
    for (const [which, mode] of this.#rules) if (which(connection)) connection.mode(mode);
  }

  /**
   * Applies to every open connection and all later ones. Switching to and from "refuse" waits for the listener.
   * @param {Mode} mode
   */
  async mode(mode) {
    this.#settings.mode = mode;
    this.#rules.clear();
    for (const connection of this.connections) connection.mode(mode);
    if (mode === "refuse" && this.#server.listening) await this.#refuse();
    if (mode !== "refuse" && !this.#server.listening) await this.#welcome();
  }

  /** The system does not reassign the port while a connection to it is open, even without a listener. */
  async #refuse() {
    this.#keeper = net.connect(this.port, "127.0.0.1").on("error", () => {});
    await once(this.#events, "kept");
    this.#server.close();
  }

  /** @param {net.Socket} socket the other end of the keeper's connection */
  #keepPort(socket) {
    socket.on("error", () => {}).resume();
    this.#events.emit("kept");
  }

  async #welcome() {
    await this.listen();
    this.#dropKeeper();
  }

  #dropKeeper() {
    this.#keeper?.resetAndDestroy();
    this.#keeper = undefined;
  }

  /**
   * Applies to the connections that `which` selects, open and later ones; a later one is checked when its first bytes
   * have arrived (`connection.head`). Ends with the next `mode()`.
   * @param {Mode} mode @param {Which} which
   */
  modeWhere(mode, which) {
    this.#rules.set(which, mode);
    for (const connection of this.connections) this.#judge(connection);
  }

  /** @param {number} ms added to each way, or to `way` only; 0 ends it @param {Way} [way] */
  delay(ms, way) {
    this.#settings.delay = { ms, way };
    for (const connection of this.connections) connection.delay(ms, way);
  }
  /** @param {Way | undefined} way */
  drop(way) {
    this.#settings.drop = way;
    for (const connection of this.connections) connection.drop(way);
  }
  /** Resets open connections; new ones are accepted. */
  reset() {
    for (const connection of this.connections) connection.reset();
  }

  async stop() {
    const closed = this.#server.listening && new Promise((resolve) => this.#server.close(resolve));
    this.#dropKeeper();
    this.reset();
    await closed;
  }
  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

/**
 * @param {TargetSource | TargetSource[]} targets several: new connections go to them in turn
 * @param {{ port?: number }} [options]
 */
export async function startTcpProxy(targets, { port = 0 } = {}) {
  const proxy = new TcpProxy(Array.isArray(targets) ? targets : [targets]);
  await proxy.listen(port);
  return proxy;
}
