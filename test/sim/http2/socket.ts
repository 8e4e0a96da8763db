import type { ClientSocket, SocketHandlers } from "../../../src/etcd/http2/socket.js";
import { OrderedPath, type Link, type Resettable } from "../../../src/testing/memory/network/link.js";
import type { NodeClock } from "../node/node-clock.js";

/** The member's end of a connection. */
export interface ServerEnd {
  read(bytes: Buffer): void;
  /** The client has closed the connection, or the link was cut. */
  closed(): void;
}

/** What the member's end does to the client's. */
export interface ToClient {
  write(bytes: Buffer): void;
  /** Closes the connection behind what was written. */
  end(): void;
}

/** Called when the connection reaches the member. */
export type Accept = (client: ToClient) => ServerEnd;

interface SocketOptions {
  readonly link: Link;
  readonly clock: NodeClock;
  readonly accept: Accept;
}

/** A TCP connection of a simulated process over a link: its bytes arrive in order, or it is reset. */
export class SimSocket implements ClientSocket, Resettable {
  destroyed = false;
  readonly writableEnded = false;
  readonly #requests: OrderedPath;
  readonly #answers: OrderedPath;
  #server: ServerEnd | undefined;
  /** The link was cut. A paused process is notified when it continues. */
  #severed = false;
  #corked: Buffer[] | undefined;

  constructor(
    private readonly options: SocketOptions,
    private readonly handlers: SocketHandlers,
  ) {
    const { link } = options;
    this.#requests = new OrderedPath(link, "request");
    this.#answers = new OrderedPath(link, "answer");
    link.connections.add(this);
    this.#connect();
  }

  write(bytes: Buffer): boolean {
    if (this.destroyed) return true;
    const copy = Buffer.from(bytes);
    if (this.#corked === undefined) this.#transmit(copy);
    else this.#corked.push(copy);
    return true;
  }

  cork(): void {
    this.#corked ??= [];
  }

  uncork(): void {
    const corked = this.#corked ?? [];
    this.#corked = undefined;
    if (corked.length > 0) this.#transmit(Buffer.concat(corked));
  }

  ref(): void {}
  unref(): void {}
  /** There is always room for what is written. */
  on(): void {}

  destroy(error?: Error): void {
    if (this.destroyed) return;
    this.#leave();
    this.#requests.send(() => this.#closeServer(), "close");
    // As Node.js: not within the call.
    process.nextTick(() => this.handlers.closed(error));
  }

  destroySoon(): void {
    this.destroy();
  }

  /** The link is cut. */
  reset(): void {
    this.#severed = true;
    this.#closeServer();
    this.#deliver(() => this.#fail("ECONNRESET", "read"));
  }

  /** The process was killed: only the member notices. */
  abandon(): void {
    if (this.destroyed) return;
    this.#leave();
    this.#requests.send(() => this.#closeServer(), "close");
  }

  #connect(): void {
    const { link } = this.options;
    if (link.state === "cut") {
      const refused = (): void => this.#fail("ECONNREFUSED", "connect");
      link.scheduler.after(link.latencyMs(), () => this.#deliver(refused));
      return;
    }
    const connected = (): void => this.#deliver(() => this.handlers.connected());
    link.send("request", () => link.send("answer", connected, "connect"), "connect");
  }

  #transmit(bytes: Buffer): void {
    this.#requests.send(() => this.#arrived(bytes), "bytes");
  }

  #arrived(bytes: Buffer): void {
    if (this.#severed || (this.#server === undefined && this.destroyed)) return;
    this.#server ??= this.#accepted();
    this.#server.read(bytes);
  }

  #accepted(): ServerEnd {
    const { accept } = this.options;
    return accept({
      write: (bytes) => this.#answers.send(() => this.#deliver(() => this.handlers.data(bytes)), "bytes"),
      end: () => this.#answers.send(() => this.#deliver(() => this.destroy()), "close"),
    });
  }

  #closeServer(): void {
    this.#server?.closed();
    this.#server = undefined;
  }

  #leave(): void {
    this.destroyed = true;
    this.options.link.connections.delete(this);
  }

  #fail(code: string, what: string): void {
    if (this.destroyed) return;
    this.#leave();
    this.handlers.closed(Object.assign(new Error(`${what} ${code}`), { code }));
  }

  /** What arrives waits while the process is paused, and is dropped once the socket is closed. */
  #deliver(run: () => void): void {
    this.options.clock.deliver(() => {
      if (!this.destroyed) run();
    });
  }
}
