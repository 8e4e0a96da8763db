import {
  CONNECTION_PREFACE,
  type Frame,
  FRAME,
  FRAME_HEADER_BYTES,
  goawayFrame,
  headersFrames,
  pingAckFrame,
  rstStreamFrame,
  settingsAckFrame,
  settingsFrame,
  windowUpdateFrame,
  writeFrameHeader,
} from "../../../src/etcd/http2/frames.js";
import { Endpoint, type Headers } from "../../../src/etcd/http2/endpoint.js";
import { encodeHeaders } from "../../../src/etcd/http2/hpack.js";
import type { SimServer } from "../../../src/testing/memory/protocol.js";
import type { Scheduler } from "../../../src/testing/memory/event-queue.js";
import type { Random } from "../../../src/testing/memory/random.js";
import { fateOf, type Behavior } from "./behavior.js";
import { callOf, type Responder, type ServerCall } from "./server-call.js";
import type { ServerEnd, ToClient } from "./socket.js";

const MAX_FRAME_BYTES = 16_384;

export interface ServerConnectionOptions {
  readonly server: SimServer;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly behavior: Behavior;
  readonly violated: (error: Error) => void;
}

/** What a stream has to answer. */
interface Open {
  readonly call: ServerCall;
  readonly isUnary: boolean;
  hasHeaders: boolean;
  /** The messages of a unary call wait for its status. */
  readonly messages: Buffer[];
}

/**
 * A member's end of one HTTP/2 connection, with gRPC: the answers of a `SimServer` as bytes. It never uses up the client's windows,
 * which are larger than a run, and gives back what it has received of its own at once.
 */
export class ServerConnection extends Endpoint implements ServerEnd {
  readonly #streams = new Map<number, Open>();
  /** What is missing of the preface. */
  #preface = CONNECTION_PREFACE.length;
  #lastId = 0;
  #over = false;

  constructor(
    private readonly client: ToClient,
    private readonly options: ServerConnectionOptions,
  ) {
    super(() => options.scheduler.now);
    this.#write(settingsFrame([]));
  }

  read(bytes: Buffer): void {
    if (this.#over) return;
    const skipped = Math.min(this.#preface, bytes.length);
    this.#preface -= skipped;
    try {
      if (skipped < bytes.length) this.reader.read(bytes.subarray(skipped));
    } catch (error) {
      this.#violated(error as Error);
    }
  }

  /** The client has sent what is no HTTP/2, no gRPC, or no request of etcd. */
  #violated(error: Error): void {
    this.options.violated(error);
    this.#write(goawayFrame(this.#lastId, "PROTOCOL_ERROR", ""));
    this.client.end();
    this.closed();
  }

  closed(): void {
    this.#over = true;
    for (const { call } of this.#streams.values()) call.cancelled();
    this.#streams.clear();
  }

  protected settings(): void {
    this.#write(settingsAckFrame());
  }

  protected ping(payload: Buffer): void {
    this.#write(pingAckFrame(payload));
  }

  protected goaway(): void {}

  protected windowUpdate(): boolean {
    return true;
  }

  protected headers(id: number, headers: Headers): boolean {
    // The rest of what was read when the connection ended: its streams are above the last ID.
    if (this.#over) return true;
    this.#lastId = id;
    const isUnary = !headers.has("hasleader");
    const out: Responder = {
      message: (message) => this.#message(id, message),
      status: (code, details) => this.#status(id, code, details),
    };
    const call = callOf(this.options.server, headers, out);
    this.#streams.set(id, { call, isUnary, hasHeaders: false, messages: [] });
    return true;
  }

  protected data({ streamId, payload }: Frame, content: Buffer): void {
    if (payload.length > 0) this.#write(windowUpdateFrame(0, payload.length));
    const open = this.#streams.get(streamId);
    if (open === undefined) return;
    if (payload.length > 0) this.#write(windowUpdateFrame(streamId, payload.length));
    open.call.message(content);
  }

  protected reset(id: number): boolean {
    const open = this.#streams.get(id);
    this.#streams.delete(id);
    open?.call.cancelled();
    return open !== undefined;
  }

  #message(id: number, message: Buffer): void {
    const open = this.#streams.get(id);
    if (open === undefined) return;
    if (open.isUnary) open.messages.push(message);
    else this.#sendMessage(id, open, message);
  }

  #status(id: number, code: number, details: string): void {
    const open = this.#streams.get(id);
    if (open === undefined) return;
    if (!open.isUnary) return this.#end(id, open, { code, details });
    const { behavior, random, scheduler } = this.options;
    const fate = fateOf(behavior, open.call.isRelease(), random);
    if (fate === "goaway") return this.#leave();
    if (fate === "calm") return this.#calm(id);
    if (fate.afterMs === 0) return this.#end(id, open, { code, details });
    // Also if the client resets the stream meanwhile: the answer may be on its way then.
    scheduler.after(fate.afterMs, () => this.#end(id, open, { code, details }));
  }

  #end(id: number, open: Open, status: Status): void {
    for (const message of open.messages) this.#sendMessage(id, open, message);
    this.#streams.delete(id);
    this.#write(trailersOf(id, open, status));
  }

  /** As a proxy that restarts: it has passed on all calls, and names the last one. */
  #leave(): void {
    this.#write(goawayFrame(this.#lastId, "NO_ERROR", ""));
    this.client.end();
    this.closed();
  }

  #calm(id: number): void {
    this.#streams.delete(id);
    this.#write(rstStreamFrame(id, "ENHANCE_YOUR_CALM"));
  }

  #sendMessage(id: number, open: Open, message: Buffer): void {
    if (!open.hasHeaders) this.#write(framesOf(id, RESPONSE_HEADERS, false));
    open.hasHeaders = true;
    for (let at = 0; at < message.length; at += MAX_FRAME_BYTES)
      this.#write(dataFrame(id, message.subarray(at, at + MAX_FRAME_BYTES)));
  }

  #write(bytes: Buffer): void {
    if (!this.#over) this.client.write(bytes);
  }
}

interface Status {
  readonly code: number;
  readonly details: string;
}

type HeaderList = readonly (readonly [name: string, value: string])[];

const RESPONSE_HEADERS: HeaderList = [
  [":status", "200"],
  ["content-type", "application/grpc"],
];

/** A call without messages has its status in its headers. */
function trailersOf(id: number, { hasHeaders }: Open, { code, details }: Status): Buffer {
  const status = [
    ["grpc-status", String(code)],
    ["grpc-message", encodeURI(details)],
  ] as const;
  return framesOf(id, hasHeaders ? status : [...RESPONSE_HEADERS, ...status], true);
}

const framesOf = (id: number, headers: HeaderList, endStream: boolean): Buffer =>
  headersFrames(id, encodeHeaders(headers), { endStream, maxFrameSize: MAX_FRAME_BYTES });

function dataFrame(streamId: number, content: Buffer): Buffer {
  const frame = Buffer.alloc(FRAME_HEADER_BYTES + content.length);
  writeFrameHeader(frame, 0, { type: FRAME.DATA, flags: 0, streamId, length: content.length });
  content.copy(frame, FRAME_HEADER_BYTES);
  return frame;
}
