import { lookup, type LookupAddress } from "node:dns";
import { connect as connectPlain, Socket, type LookupFunction, type OnReadOpts } from "node:net";
import { connect as connectSecure, type ConnectionOptions, type TLSSocket } from "node:tls";
import { inOwnContext } from "../../async/own-context.js";
import { printable } from "../../printable.js";

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
  /** `undefined`: plain TCP. */
  readonly tls: TlsOptions | undefined;
  /** Of a name with several addresses, connection number n begins with address n. */
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
  socket.on(
    "error",
    (error: NodeJS.ErrnoException) => (reason ??= error.code === NO_ALPN ? noHttp2() : error),
  );
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

function openPlain({ hostname, port, turn }: Target, onread: OnReadOpts): Socket {
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
  return connectSecure(options);
}

/** A lookup whose addresses begin with another one for each `turn`. Node.js tries them in this order, without waiting long. */
export function rotated(turn: number, resolve: typeof lookup = lookup): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, { ...options, all: true }, (error, found) => {
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
