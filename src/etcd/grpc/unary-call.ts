import type { AbortFanOut } from "../../async/abort-fan-out.js";
import type { Deadline, Deadlines } from "../../async/deadlines.js";
import type { StreamFailure } from "../http2/failure.js";
import type { CallOptions } from "../port.js";
import { CancelledError, UnansweredError } from "../port-errors.js";
import { Call, type CallListener } from "./call.js";
import type { Channel } from "./channel.js";
import { statusFailure } from "../refusals/refusals.js";
import { streamFailure } from "./failures.js";
import type { Status } from "./status.js";

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
    if (signal?.aborted) return Promise.reject(new CancelledError("the caller gave up", { inDoubt: false }));
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
      this.#stopListening = aborts.add(signal, () =>
        this.#cancel(new CancelledError("the caller gave up", { inDoubt: this.#sent })),
      );
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
