import { once } from "node:events";
import net, { type AddressInfo, type Socket } from "node:net";
import type { CutMode } from "./options.js";

/** Where a member answers its clients now. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** Undefined: nowhere. A connection is reset then. */
type Target = () => Address | undefined;

/**
 * The way of clients to one member: a port of 127.0.0.1 whose connections lead to the member, until they are cut. It does not keep
 * the process alive.
 */
export class Link {
  readonly #server: net.Server;
  readonly #target: Target;
  readonly #pairs = new Set<Pair>();
  #cut: CutMode | undefined;
  #held = false;

  /** `target` is asked for each connection: the port of a container may change when it is started again. */
  static async open(target: Target, port = 0): Promise<Link> {
    const link = new Link(target);
    link.#server.listen(port, "127.0.0.1").unref();
    await once(link.#server, "listening");
    return link;
  }

  private constructor(target: Target) {
    this.#target = target;
    this.#server = net.createServer((socket) => this.#accept(socket));
  }

  /** For `connect({ hosts })`. */
  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /**
   * "silent": connections stay open, new ones are accepted, and every byte is dropped, in both directions. "reset": open
   * connections are reset, and so are new ones.
   */
  cut(how: CutMode): void {
    this.#cut = how;
    for (const pair of [...this.#pairs]) {
      if (how === "reset") pair.reset();
      else pair.silence();
    }
  }

  /** Connections that were silent are reset, because bytes of them are missing. */
  heal(): void {
    if (this.#cut === undefined) return;
    this.#cut = undefined;
    for (const pair of [...this.#pairs]) pair.reset();
  }

  /** As in front of a process that is suspended: connections stay, and what is sent waits. */
  hold(): void {
    this.#held = true;
    for (const pair of this.#pairs) pair.hold();
  }

  /** Does nothing to a link that is not held: a connection that leads to the member would pass each byte twice. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    for (const pair of this.#pairs) pair.lead(this.#target);
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, "close");
    this.#server.close();
    for (const pair of [...this.#pairs]) pair.reset();
    await closed;
  }

  #accept(client: Socket): void {
    client.on("error", () => {});
    if (this.#cut === "reset") return void client.resetAndDestroy();
    const pair = new Pair(client, () => this.#pairs.delete(pair));
    this.#pairs.add(pair);
    if (this.#cut === "silent") pair.silence();
    else if (!this.#held) pair.lead(this.#target);
  }
}

/** A connection of a client, and the one to the member. */
class Pair {
  readonly #client: Socket;
  readonly #onEnd: () => void;
  #server: Socket | undefined;
  #silent = false;

  constructor(client: Socket, onEnd: () => void) {
    this.#client = client;
    this.#onEnd = onEnd;
    client.unref();
    client.setNoDelay(true);
    client.on("close", (failed) => this.#closed(failed));
  }

  lead(target: Target): void {
    if (this.#silent) return;
    const address = target();
    if (this.#server === undefined && address === undefined) return this.reset();
    const server = (this.#server ??= this.#connect(address!));
    this.#client.pipe(server).pipe(this.#client);
  }

  hold(): void {
    if (this.#silent) return;
    for (const socket of this.#sockets()) socket.unpipe().pause();
  }

  #connect(address: Address): Socket {
    const server = net.connect({ ...address, noDelay: true });
    server.unref();
    server.on("error", () => {});
    server.on("close", (failed) => this.#closed(failed));
    return server;
  }

  silence(): void {
    this.#silent = true;
    for (const socket of this.#sockets()) {
      socket.unpipe();
      socket.resume();
    }
  }

  reset(): void {
    this.#silent = false;
    for (const socket of this.#sockets()) reset(socket);
    this.#onEnd();
  }

  #sockets(): readonly Socket[] {
    return this.#server === undefined ? [this.#client] : [this.#client, this.#server];
  }

  // A cut link tells neither side that the other one has left.
  #closed(failed: boolean): void {
    const open = this.#sockets().filter((socket) => !socket.destroyed);
    if (open.length === 0) this.#onEnd();
    if (this.#silent) return;
    for (const socket of open) {
      if (failed) reset(socket);
      else socket.destroySoon();
    }
  }
}

/**
 * Node.js (20 to 26) fails to reset a socket that is just sending its end. It then leaves it open, and forgets it: the process never
 * ends, and uses one core for that.
 */
function reset(socket: Socket): void {
  const isEnding = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
  if (isEnding) socket.destroy();
  else socket.resetAndDestroy();
}
