import type { lookup, LookupAddress } from "node:dns";
import { connect as connectPlain, type LookupFunction, type OnReadOpts, Socket } from "node:net";
import type { ConnectionOptions, TLSSocket } from "node:tls";
import type { Timers } from "../../base/util/timers.js";
import { inOwnContext, nextTick } from "../../base/util/own-context.js";
import { printable } from "../../base/util/printable.js";

/** Node.js' name for the alert of a server that knows ALPN, but not h2: RFC 7301, section 3.2. */
const NO_ALPN = "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL";

/** The certificates of a TLS connection, as PEM text. */
export interface TlsOptions {
  /** Without it, the authorities that Node.js trusts. */
  readonly ca?: Uint8Array | undefined;
  readonly key?: Uint8Array | undefined;
  readonly cert?: Uint8Array | undefined;
  /** The name in the server's certificate, if it is not the name of the host. */
  readonly serverName?: string | undefined;
}

/** Where a connection goes. */
export interface Target {
  /** A name, an IPv4 address, or an IPv6 address without brackets. */
  readonly hostname: string;
  readonly port: number;
  /** A socket of the file system in their place. */
  readonly path?: string | undefined;
  /** `undefined`: no TLS. */
  readonly tls: TlsOptions | undefined;
  /** Connection number n begins with address n of a name that has several. */
  readonly turn: number;
}

export interface SocketHandlers {
  /** Bytes may be written. */
  connected(): void;
  data(chunk: Buffer): void;
  /** Called once, as the last call. `asked`: without a word, after it has asked for a certificate of the client. */
  closed(error: Error | undefined, asked?: boolean): void;
}

/** What a connection needs of its socket. */
export interface ClientSocket {
  readonly destroyed: boolean;
  readonly writableEnded: boolean;
  write(bytes: Buffer): boolean;
  cork(): void;
  uncork(): void;
  ref(): unknown;
  unref(): unknown;
  destroy(error?: Error): unknown;
  /** Closes it when everything is written. */
  destroySoon(): void;
  on(event: "drain", listener: () => void): unknown;
}

export type OpenSocket = (target: Target, handlers: SocketHandlers) => ClientSocket;

/**
 * The socket reads into memory of its own, which it uses again and again. Without that, Node.js allocates 64 KiB for each
 * read.
 */
const READ_BYTES = 16 * 1024;

/** Connects to `target`. Every error of the socket ends in `closed`; `socket.destroy(error)` does, too. */
export function openSocket(target: Target, handlers: SocketHandlers): Socket {
  const onread = readInto(Buffer.allocUnsafeSlow(READ_BYTES), handlers);
  const socket = inOwnContext(() => opened(target, onread));
  let reason: NodeJS.ErrnoException | undefined;
  let asked = false;
  socket.setNoDelay(true);
  socket.on("error", (error: NodeJS.ErrnoException) => {
    reason ??= error.code === NO_ALPN ? noHttp2() : error;
    // After the handshake Node.js only reports a failure of TLS.
    socket.destroy();
  });
  socket.on("end", () => socket.destroy());
  // Before Node.js itself ends a handshake that is not complete.
  socket.prependListener("end", () => (asked ||= asksForCertificate(socket)));
  socket.on("close", () => {
    const isSilent = reason === undefined || reason.code === "ECONNRESET" || reason.code === "EPIPE";
    // A socket that has no handle is closed in the context of `destroy`.
    inOwnContext(() => handlers.closed(reason, asked && isSilent));
  });
  socket.once(target.tls === undefined ? "connect" : "secureConnect", () => {
    asked = asksForCertificate(socket);
    if (target.tls === undefined || (socket as TLSSocket).alpnProtocol === "h2") handlers.connected();
    else socket.destroy(noHttp2());
  });
  return socket;
}

/**
 * Whether the server has asked the client for a certificate, as far as the runtime tells: the request lists signature
 * algorithms, and only there a client gets such a list.
 */
function asksForCertificate(socket: Socket): boolean {
  try {
    const algorithms = (socket as Partial<TLSSocket>).getSharedSigalgs?.() ?? [];
    return algorithms.length > 0;
  } catch {
    return false;
  }
}

const noHttp2 = (): Error => new Error("the server does not speak HTTP/2: it chose no ALPN protocol h2");

/** `handlers` get a copy, which they may keep. */
function readInto(buffer: Buffer, handlers: SocketHandlers): OnReadOpts {
  const callback = (bytes: number): true => {
    handlers.data(Buffer.from(buffer.subarray(0, bytes)));
    return true;
  };
  return { buffer, callback };
}

/** A socket that closes with the reason if `target` makes no sense: Node.js throws if a port, a certificate or a key does not. */
function opened(target: Target, onread: OnReadOpts): Socket {
  try {
    return target.tls === undefined ? openPlain(target, onread) : openSecure(target, target.tls, onread);
  } catch (error) {
    return new Socket().destroy(error as Error);
  }
}

function openPlain({ hostname, port, path, turn }: Target, onread: OnReadOpts): Socket {
  if (path !== undefined) return connectPlain({ path, onread });
  return connectPlain({ host: hostname, port, lookup: rotated(turn), onread });
}

function openSecure({ hostname, port, turn }: Target, tls: TlsOptions, onread: OnReadOpts): TLSSocket {
  const bytes = (pem: Uint8Array | undefined): Buffer | undefined => pem && Buffer.from(pem);
  const options: ConnectionOptions & { readonly onread: OnReadOpts } = {
    host: hostname,
    port,
    lookup: rotated(turn),
    onread,
    ALPNProtocols: ["h2"],
    // Stated, so that NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment does not switch the check off.
    rejectUnauthorized: true,
    // Node.js itself sends the host name, and none if it is an address: RFC 6066, section 3.
    ...(tls.serverName !== undefined && { servername: tls.serverName }),
    ...(tls.ca && { ca: bytes(tls.ca) }),
    ...(tls.key && { key: bytes(tls.key) }),
    ...(tls.cert && { cert: bytes(tls.cert) }),
  };
  // An import would load it, and with it the certificates of all authorities, in programs that need no TLS.
  return process.getBuiltinModule("node:tls").connect(options);
}

/** A lookup whose addresses begin with another one for each `turn`. Node.js tries them in this order, without waiting long. */
export function rotated(turn: number, resolve?: typeof lookup): LookupFunction {
  return (hostname, options, callback) => {
    const find = resolve ?? process.getBuiltinModule("node:dns").lookup;
    find(hostname, { ...options, all: true }, (error, found) => {
      const addresses = rotate(found ?? [], turn);
      const [first] = addresses;
      if (error || first === undefined) callback(error ?? new Error(`no address for ${hostname}`), "", 4);
      else if (options.all) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}

function rotate(addresses: readonly LookupAddress[], turn: number): LookupAddress[] {
  const first = addresses.length === 0 ? 0 : turn % addresses.length;
  return [...addresses.slice(first), ...addresses.slice(0, first)];
}

const HTTP1 = "HTTP/";
/** Banners such as that of SSH fit into it. */
const FIRST_BYTES = 60;

/** The first bytes of a server: they tell what it probably is, if it does not answer in HTTP/2. */
export class FirstBytes {
  #bytes = Buffer.alloc(0);

  add(chunk: Buffer): void {
    if (this.#bytes.length < FIRST_BYTES)
      this.#bytes = Buffer.concat([this.#bytes, chunk]).subarray(0, FIRST_BYTES);
  }

  get hint(): string | undefined {
    const [first, second] = this.#bytes;
    // A TLS record: an alert, or a handshake.
    if ((first === 0x15 || first === 0x16) && second === 0x03)
      return "it answers in TLS: does it want TLS (https://, credentials)?";
    if (this.#bytes.toString("latin1", 0, HTTP1.length) === HTTP1)
      return "it answers in HTTP/1: is this etcd?";
    // The first frame of HTTP/2 is short, so its length begins with a zero.
    if (first === undefined || first === 0) return undefined;
    const text = this.#bytes.toString("latin1").trimEnd();
    return `it does not speak HTTP/2: it sent "${printable(text, FIRST_BYTES)}"`;
  }
}

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
    private readonly deadlines: Timers,
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
    if (this.blocked) this.#backlog += bytes.length;
    if (bytes.length > COPIED_BYTES) {
      this.#cut();
      this.#parts.push(bytes);
    } else {
      if (this.#end + bytes.length > CHUNK_BYTES) this.#nextChunk();
      bytes.copy(this.#chunk, this.#end);
      this.#end += bytes.length;
    }
    if (this.#scheduled) return;
    this.#scheduled = true;
    nextTick(() => this.flush());
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
    inOwnContext(() => {
      if (parts.length > 1) this.socket.cork();
      for (const part of parts) this.blocked = !this.socket.write(part);
      if (parts.length > 1) this.socket.uncork();
    });
  }
}
