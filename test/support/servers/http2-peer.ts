import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createSecureServer, type TlsOptions } from "node:tls";

/** A server that speaks HTTP/2 frame by frame, and sends what the test wants. It shares no code with the library. */

export const TYPES = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
  UNKNOWN: 0xbe,
} as const;
export type TypeName = keyof typeof TYPES;

export const FLAGS = { NONE: 0, ACK: 1, END_STREAM: 1, END_HEADERS: 4, PADDED: 8, PRIORITY: 0x20 } as const;
export const SETTINGS = {
  MAX_CONCURRENT_STREAMS: 3,
  INITIAL_WINDOW_SIZE: 4,
  MAX_FRAME_SIZE: 5,
  MAX_HEADER_LIST_SIZE: 6,
} as const;
export const CODES = {
  NO_ERROR: 0,
  INTERNAL: 2,
  REFUSED_STREAM: 7,
  CANCEL: 8,
  ENHANCE_YOUR_CALM: 11,
} as const;

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const NAMES = new Map(Object.entries(TYPES).map(([name, type]) => [type as number, name as TypeName]));

export interface ClientFrame {
  readonly type: TypeName;
  readonly flags: number;
  readonly streamId: number;
  readonly payload: Buffer;
}

/** Any frame, also one that no correct peer would send. `length`: what its header announces. */
export function frame(
  type: TypeName,
  streamId: number,
  { flags = 0, payload = Buffer.alloc(0), length = payload.length }: FrameParts = {},
): Buffer {
  const header = Buffer.alloc(9);
  header.writeUIntBE(length, 0, 3);
  header[3] = TYPES[type];
  header[4] = flags;
  header.writeUInt32BE(streamId, 5);
  return Buffer.concat([header, payload]);
}

interface FrameParts {
  readonly flags?: number;
  readonly payload?: Buffer;
  readonly length?: number;
}

type Pairs = readonly (readonly [string, string])[];

/** HPACK literals without indexing and without Huffman code. */
export function headerBlock(headers: Pairs): Buffer {
  return Buffer.concat(
    headers.map(([name, value]) => Buffer.concat([Buffer.of(0), hpackText(name), hpackText(value)])),
  );
}

function hpackText(text: string): Buffer {
  const bytes = Buffer.from(text, "latin1");
  if (bytes.length < 127) return Buffer.concat([Buffer.of(bytes.length), bytes]);
  const size = [127];
  let rest = bytes.length - 127;
  for (; rest >= 128; rest >>>= 7) size.push((rest & 127) | 128);
  return Buffer.concat([Buffer.of(...size, rest), bytes]);
}

export const uint32 = (...values: number[]): Buffer => {
  const bytes = Buffer.alloc(4 * values.length);
  values.forEach((value, at) => bytes.writeUInt32BE(value >>> 0, 4 * at));
  return bytes;
};

export const headersFrame = (streamId: number, headers: Pairs, { endStream = false } = {}): Buffer =>
  frame("HEADERS", streamId, {
    flags: FLAGS.END_HEADERS | (endStream ? FLAGS.END_STREAM : 0),
    payload: headerBlock(headers),
  });

export const dataFrame = (streamId: number, payload: Buffer, { endStream = false } = {}): Buffer =>
  frame("DATA", streamId, { flags: endStream ? FLAGS.END_STREAM : 0, payload });

export function settingsFrame(settings: readonly (readonly [number, number])[] = []): Buffer {
  const payload = Buffer.alloc(6 * settings.length);
  settings.forEach(([id, value], at) => {
    payload.writeUInt16BE(id, 6 * at);
    payload.writeUInt32BE(value, 6 * at + 2);
  });
  return frame("SETTINGS", 0, { payload });
}

export const rstFrame = (streamId: number, code: number): Buffer =>
  frame("RST_STREAM", streamId, { payload: uint32(code) });

export const windowFrame = (streamId: number, bytes: number): Buffer =>
  frame("WINDOW_UPDATE", streamId, { payload: uint32(bytes) });

export const goawayFrame = (lastId: number, code: number, debug = ""): Buffer =>
  frame("GOAWAY", 0, { payload: Buffer.concat([uint32(lastId, code), Buffer.from(debug)]) });

export const pingFrame = (text = "12345678"): Buffer => frame("PING", 0, { payload: Buffer.from(text) });

/** A gRPC message with its prefix. */
export const grpcMessage = (text: string | Buffer): Buffer => {
  const bytes = Buffer.from(text);
  return Buffer.concat([Buffer.of(0), uint32(bytes.length), bytes]);
};

export const RESPONSE: Pairs = [
  [":status", "200"],
  ["content-type", "application/grpc"],
];

export const responseFrame = (streamId: number): Buffer => headersFrame(streamId, RESPONSE);

export const trailersFrame = (streamId: number, status = "0", more: Pairs = []): Buffer =>
  headersFrame(streamId, [["grpc-status", status], ...more], { endStream: true });

/** A whole answer to a unary call. */
export const answerFrames = (streamId: number, text: string | Buffer): Buffer =>
  Buffer.concat([responseFrame(streamId), dataFrame(streamId, grpcMessage(text)), trailersFrame(streamId)]);

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The number of frames in `bytes`. A frame may be cut off, if its header is whole. */
export function framesIn(bytes: Buffer): number {
  let count = 0;
  for (let at = 0; at + 9 <= bytes.length; at += 9 + bytes.readUIntBE(at, 3)) count++;
  return count;
}

/** The number of whole SETTINGS frames in `bytes` that are no acks. */
function settingsIn(bytes: Buffer): number {
  let count = 0;
  for (let at = 0; at + 9 <= bytes.length; at += 9 + bytes.readUIntBE(at, 3))
    if (bytes[at + 3] === 4 && ((bytes[at + 4] ?? 0) & 1) === 0) count++;
  return count;
}

/** One connection of a client. */
export class PeerConnection {
  /** Everything that the client has sent. */
  readonly frames: ClientFrame[] = [];
  /** Settles when the socket is closed; true: the client sent its FIN before. */
  readonly closed: Promise<boolean>;
  #bytes: Buffer = Buffer.alloc(0);
  #begun = false;
  /** What `next` has not returned. */
  readonly #unread = new Map<TypeName, ClientFrame[]>();
  #waiting = new Set<() => void>();
  /** SETTINGS that the client has to acknowledge. */
  #settings = 0;
  #over = false;

  constructor(readonly socket: Socket) {
    let fin = false;
    socket.on("error", () => {});
    socket.on("end", () => (fin = true));
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    this.closed = new Promise((resolve) => {
      socket.once("close", () => {
        this.#over = true;
        this.#wake();
        resolve(fin);
      });
    });
  }

  /** The frames of one type. */
  all(type: TypeName): ClientFrame[] {
    return this.frames.filter((each) => each.type === type);
  }

  /** The next frame of that type which no call has returned; of `streamId`, if given. ACKs are left out. */
  async next(type: TypeName, streamId?: number): Promise<ClientFrame> {
    const isIt = (each: ClientFrame): boolean =>
      (streamId ?? each.streamId) === each.streamId && !(type === "PING" && each.flags === FLAGS.ACK);
    return this.#until(`${type} ${streamId ?? ""}`, () => {
      const unread = this.#unread.get(type) ?? [];
      const at = unread.findIndex(isIt);
      return at < 0 ? undefined : unread.splice(at, 1)[0];
    });
  }

  /** The stream ID of the next request whose headers arrive. */
  async request(): Promise<number> {
    return (await this.next("HEADERS")).streamId;
  }

  /** The stream IDs of as many requests. */
  async requests(count: number): Promise<number[]> {
    const ids: number[] = [];
    while (ids.length < count) ids.push(await this.request());
    return ids;
  }

  /** All DATA of a stream, once it has as many bytes. */
  async body(streamId: number, bytes: number): Promise<Buffer> {
    const joined = (): Buffer => this.bodySoFar(streamId);
    return this.#until(`${bytes} bytes on ${streamId}`, () =>
      joined().length >= bytes ? joined() : undefined,
    );
  }

  bodySoFar(streamId: number): Buffer {
    const data = this.all("DATA").filter((each) => each.streamId === streamId);
    return Buffer.concat(data.map(({ payload }) => payload));
  }

  /** Sends SETTINGS, which opens the connection. */
  greet(settings: readonly (readonly [number, number])[] = []): void {
    this.send(settingsFrame(settings));
  }

  send(...bytes: readonly Buffer[]): void {
    const all = Buffer.concat(bytes);
    this.#settings += settingsIn(all);
    this.socket.write(all);
  }

  /** Sends `bytes` in pieces that end at these positions, and lets the client read each before the next. */
  async sendSplit(bytes: Buffer, positions: readonly number[]): Promise<void> {
    const ends = [...positions, bytes.length];
    this.#settings += settingsIn(bytes);
    for (const [at, end] of ends.entries()) {
      this.socket.write(bytes.subarray(ends[at - 1] ?? 0, end));
      await nextTurn();
      await nextTurn();
    }
  }

  /** Everything sent in both directions before has been read. By SETTINGS: the client answers a PING with its next call. */
  async barrier(): Promise<void> {
    this.send(settingsFrame());
    const expected = this.#settings;
    const acks = () => this.all("SETTINGS").filter(({ flags }) => flags === FLAGS.ACK);
    await this.#until(`${expected} acks of SETTINGS`, () => acks()[expected - 1]);
  }

  /** The next GOAWAY's code. */
  async goaway(): Promise<number> {
    return (await this.next("GOAWAY")).payload.readUInt32BE(4);
  }

  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    this.socket.resume();
  }

  close(): void {
    this.socket.end();
  }

  reset(): void {
    this.socket.resetAndDestroy();
  }

  async #until<T>(what: string, find: () => T | undefined): Promise<T> {
    for (;;) {
      const found = find();
      if (found !== undefined) return found;
      if (this.#over) throw new Error(`the client closed the connection; still expected: ${what}`);
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  #wake(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  #read(chunk: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk]);
    if (!this.#begun && this.#bytes.length >= PREFACE.length) this.#begin();
    let at = 0;
    const bytes = this.#bytes;
    while (this.#begun && bytes.length - at >= 9) {
      const end = at + 9 + bytes.readUIntBE(at, 3);
      if (end > bytes.length) break;
      this.#add(bytes.subarray(at, end));
      at = end;
    }
    this.#bytes = bytes.subarray(at);
    this.#wake();
  }

  #begin(): void {
    const preface = this.#bytes.toString("latin1", 0, PREFACE.length);
    if (preface !== PREFACE) throw new Error(`the client began with ${JSON.stringify(preface)}`);
    this.#bytes = this.#bytes.subarray(PREFACE.length);
    this.#begun = true;
  }

  #add(bytes: Buffer): void {
    const type = NAMES.get(bytes[3] ?? 0) ?? "UNKNOWN";
    const added = { type, flags: bytes[4] ?? 0, streamId: bytes.readUInt32BE(5), payload: bytes.subarray(9) };
    this.frames.push(added);
    const unread = this.#unread.get(type);
    if (unread) unread.push(added);
    else this.#unread.set(type, [added]);
  }
}

export interface PeerSetting {
  readonly tls?: TlsOptions;
  readonly host?: string;
  /** Called with the bare socket: the connection is not parsed. */
  readonly raw?: (socket: Socket) => void;
}

export class Http2Peer {
  readonly connections: PeerConnection[] = [];
  #waiting = new Set<() => void>();
  readonly #sockets = new Set<Socket>();

  constructor(
    private readonly server: Server,
    { tls, raw }: PeerSetting,
  ) {
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", () => {});
      socket.once("close", () => this.#sockets.delete(socket));
    });
    server.on("tlsClientError", () => {});
    server.on(tls ? "secureConnection" : "connection", (socket: Socket) => {
      if (raw) raw(socket);
      else this.connections.push(new PeerConnection(socket));
      for (const wake of this.#waiting) wake();
    });
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** Connection number `n`, counted from 0. */
  async connection(n = 0): Promise<PeerConnection> {
    for (;;) {
      const found = this.connections[n];
      if (found) return found;
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

export async function startPeer(setting: PeerSetting = {}): Promise<Http2Peer> {
  const { tls, host = "127.0.0.1" } = setting;
  const server = tls ? createSecureServer(tls) : createServer();
  const peer = new Http2Peer(server, setting);
  server.listen(0, host);
  await once(server, "listening");
  return peer;
}
