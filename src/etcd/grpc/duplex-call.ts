import type { StreamFailure } from "../http2/failure.js";
import { UnansweredError } from "../port-errors.js";
import type { StreamHandlers } from "../port.js";
import { Call, type CallListener } from "./call.js";
import type { Channel } from "./channel.js";
import { statusFailure } from "../refusals/refusals.js";
import { streamFailure } from "./failures.js";
import type { Status } from "./status.js";

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
