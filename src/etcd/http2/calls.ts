import type { AbortFanOut } from "../../util/abort.js";
import type { Deadline, Deadlines } from "../../util/deadlines.js";
import { type CallOptions, gaveUp, type StreamHandlers, UnansweredError } from "../port.js";
import { certificateFailure, isUnreachable, readable, statusFailure } from "../refusals.js";
import { Call, type CallListener, type Status } from "./call.js";
import type { Channel } from "./member.js";
import { messageOf, type StreamFailure } from "./stream.js";

/** The error for a call that ended without a status; `inDoubt`: the peer may have executed it. */
export function streamFailure(failure: StreamFailure, host: string, inDoubt: boolean): Error {
  const { kind, message, cause } = failure;
  if (kind === "calm") return new UnansweredError(readable(message), { kind: "calm", inDoubt });
  if (kind === "connecting" && isUnreachable(message))
    return new UnansweredError(readable(message), { kind: "unreachable", cause: failure });
  if (kind === "turned away") return new UnansweredError(readable(message), { kind });
  // The message may quote the peer.
  const isOwn = kind === "connecting" && cause instanceof Error;
  const refusal = isOwn ? certificateFailure(messageOf(cause), host) : undefined;
  return refusal ?? new UnansweredError(readable(message), { cause: failure, inDoubt });
}

/** What all unary calls of a member share. */
export interface UnaryServices {
  readonly host: string;
  readonly channel: Channel;
  readonly deadlines: Deadlines;
  readonly aborts: AbortFanOut;
}

export interface UnaryRequest<T> {
  readonly headerBlock: Buffer;
  /** With its gRPC prefix. */
  readonly message: Buffer;
  /** See `CallSetting`. */
  readonly maxMessageBytes?: number | undefined;
  /** An answer that it cannot decode counts as none. */
  decode(message: Buffer): T;
}

/** One attempt of one unary call: settles with the decoded answer, a failure, the end of its time, or the caller's abort. */
export class UnaryCall<T> implements CallListener {
  #call: Call | undefined;
  #answer: Buffer | undefined;
  #sent = false;
  #deadline: Deadline | undefined;
  #stopListening: (() => void) | undefined;
  #resolve!: (answer: T) => void;
  #reject!: (error: Error) => void;

  constructor(
    private readonly services: UnaryServices,
    private readonly request: UnaryRequest<T>,
    private readonly options: CallOptions,
  ) {}

  run(): Promise<T> {
    const { signal } = this.options;
    if (signal?.aborted) return Promise.reject(gaveUp(false));
    return new Promise<T>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#start();
    });
  }

  sent(): void {
    this.#sent = true;
    this.options.onSent?.();
  }

  message(message: Buffer): void {
    if (this.#answer === undefined) this.#answer = message;
    else this.#cancel(new UnansweredError("more than one answer to one request"));
  }

  ended(status: Status): void {
    if (status.code !== 0) return this.#fail(statusFailure(status, this.services.host));
    if (this.#answer === undefined) return this.#fail(new UnansweredError("an answer without a message"));
    this.#stop();
    let answer: T;
    try {
      answer = this.request.decode(this.#answer);
    } catch (error) {
      return this.#reject(new UnansweredError("the answer makes no sense", { cause: error }));
    }
    this.#resolve(answer);
  }

  failed(failure: StreamFailure, inDoubt: boolean): void {
    this.#fail(streamFailure(failure, this.services.host, inDoubt));
  }

  #start(): void {
    const { deadlines, aborts, channel } = this.services;
    const { timeoutMs, signal } = this.options;
    const { headerBlock, message, maxMessageBytes } = this.request;
    this.#deadline = deadlines.add(timeoutMs, () => this.#timedOut());
    if (signal !== undefined)
      this.#stopListening = aborts.add(signal, () => this.#cancel(gaveUp(this.#sent)));
    this.#call = new Call({ headerBlock, urgent: false, unary: true, maxMessageBytes }, this);
    this.#call.write(message);
    channel.start(this.#call);
  }

  #timedOut(): void {
    const limit = `within ${Math.round(this.options.timeoutMs)} ms`;
    const holdUp = this.#sent ? undefined : this.#call?.holdUp;
    const unsent = holdUp === undefined ? `no connection ${limit}` : `not sent ${limit}: ${holdUp}`;
    this.#cancel(new UnansweredError(this.#sent ? `no answer ${limit}` : unsent, { inDoubt: this.#sent }));
  }

  #cancel(error: Error): void {
    this.#call?.cancel();
    this.#fail(error);
  }

  #fail(error: Error): void {
    this.#stop();
    this.#reject(error);
  }

  #stop(): void {
    this.#deadline?.cancel();
    this.#stopListening?.();
  }
}

export interface DuplexRequest<Answer> extends StreamHandlers<Answer> {
  readonly host: string;
  readonly headerBlock: Buffer;
  /** See `Http2Stream.urgent`. */
  readonly urgent: boolean;
  /** See `CallSetting`. */
  readonly maxMessageBytes?: number | undefined;
  /** Decodes an answer. A stream whose answers cannot be decoded has failed. */
  decode(message: Buffer): Answer;
}

/** A bidirectional stream. Messages that are written before the connection is open wait for it. */
export class DuplexCall<Answer> implements CallListener {
  readonly #call: Call;
  #over = false;

  constructor(
    channel: Channel,
    private readonly request: DuplexRequest<Answer>,
  ) {
    const { headerBlock, urgent, maxMessageBytes } = request;
    this.#call = new Call({ headerBlock, urgent, unary: false, maxMessageBytes }, this);
    channel.start(this.#call);
  }

  /** `message` has its gRPC prefix. */
  write(message: Buffer): void {
    this.#call.write(message);
  }

  /** Resets the stream, which also frees the watches of the member. `ended` is not called after that. */
  close(): void {
    if (this.#over) return;
    this.#over = true;
    this.#call.cancel();
  }

  sent(): void {}

  message(message: Buffer): void {
    let answer: Answer;
    try {
      answer = this.request.decode(message);
    } catch (error) {
      this.#call.cancel();
      return this.#end(new UnansweredError("the answer makes no sense", { cause: error }));
    }
    this.request.answer(answer);
  }

  ended(status: Status): void {
    const { host } = this.request;
    this.#end(
      status.code === 0 ? new UnansweredError("the member ended the stream") : statusFailure(status, host),
    );
  }

  failed(failure: StreamFailure, inDoubt: boolean): void {
    this.#end(streamFailure(failure, this.request.host, inDoubt));
  }

  #end(error: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.request.ended(error);
  }
}
