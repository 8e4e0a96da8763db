import { failureOf, type GrpcStatus } from "./grpc-failures.js";
import type { StreamHandlers } from "../port.js";
import { UnansweredError } from "../port-errors.js";

/** The part of a gRPC stream that this library uses. */
export interface GrpcStream<Request, Raw> {
  write(request: Request): unknown;
  end(): void;
  cancel(): void;
  on(event: "data", listener: (raw: Raw) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "end", listener: () => void): unknown;
}

/** The host of a stream, and the status of its call, once gRPC has reported one. */
export interface StreamCall {
  readonly host: string;
  readonly status: GrpcStatus | undefined;
}

export interface DuplexHandlers<Raw, Answer> extends StreamHandlers<Answer> {
  /** Decodes an answer. A stream whose answers cannot be decoded has failed. */
  read(raw: Raw): Answer;
  /** Called once, when the stream uses its connection no longer. */
  released(): void;
}

/** etcd3 opens streams asynchronously: earlier writes are kept. `ended` is called once, and not after `close()`. */
export class DuplexStream<Request, Raw, Answer> {
  #stream: GrpcStream<Request, Raw> | undefined;
  /** Requests from before the stream was open. */
  readonly #unsent: Request[] = [];
  /** The stream has failed or was closed. */
  #over = false;

  constructor(
    opening: Promise<GrpcStream<Request, Raw>>,
    private readonly call: StreamCall,
    private readonly handlers: DuplexHandlers<Raw, Answer>,
  ) {
    opening.then(
      (stream) => this.#opened(stream),
      (error: Error) => this.#notOpened(error),
    );
  }

  write(request: Request): void {
    if (this.#over) return;
    if (this.#stream) this.#stream.write(request);
    else this.#unsent.push(request);
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    // Otherwise it is closed as soon as it is open.
    if (this.#stream) closeStream(this.#stream, () => this.handlers.released());
  }

  #opened(stream: GrpcStream<Request, Raw>): void {
    this.#stream = stream;
    // Registered first, even for a stream that is closed at once: without this listener an error would crash the process.
    stream.on("error", (error) => this.#fail(error));
    stream.on("end", () => this.#fail(new UnansweredError("the member ended the stream")));
    stream.on("data", (raw) => this.#over || this.#take(raw));
    if (this.#over) closeStream(stream, () => this.handlers.released());
    else for (const request of this.#unsent.splice(0)) stream.write(request);
  }

  #notOpened(error: Error): void {
    if (this.#over) this.handlers.released();
    else this.#fail(error);
  }

  #take(raw: Raw): void {
    let answer: Answer;
    try {
      answer = this.handlers.read(raw);
    } catch (error) {
      if (this.#stream) closeStream(this.#stream, () => undefined);
      return this.#fail(new UnansweredError("the answer makes no sense", { cause: error }));
    }
    guarded(() => this.handlers.answer(answer));
  }

  #fail(error: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.handlers.released();
    const { host, status } = this.call;
    this.handlers.ended(status ? failureOf(status, host, false) : error);
  }
}

/**
 * `end()` alone leaks the member's watchers, `cancel()` alone counts as a failure of the host. Both are deferred: this may
 * run within the callback in which node:http2 reads from the same connection, where a reset of another stream never returns
 * (seen on Node.js 20: the process spins, and its memory grows).
 */
function closeStream(stream: { end(): void; cancel(): void }, released: () => void): void {
  setImmediate(() => {
    stream.end();
    stream.cancel();
    released();
  });
}

/** An exception here would become an unhandled rejection in the stream's promise chain: make it a plain crash. */
function guarded(run: () => void): void {
  try {
    run();
  } catch (error) {
    process.nextTick(() => {
      throw error;
    });
  }
}
