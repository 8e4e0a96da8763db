import type { StreamFailure } from "../../../src/etcd/http2/failure.js";
import type { LeaseAnswer, WatchAnswer } from "../../../src/etcd/port.js";
import type { Refusal, ServerStream, UnaryReply, UnaryRequest, WatchCommand } from "../etcd/types.js";

/** What a unary call receives. After `replied` or `failed`, and after `cancel()`, it receives nothing more. */
export interface CallListener {
  /** The request was handed to an open connection: from now on it may be executed. */
  sent(): void;
  replied(reply: UnaryReply): void;
  /** `inDoubt`: the request may have been executed, or may be executed later. */
  failed(failure: StreamFailure, inDoubt: boolean): void;
}

/** What a stream receives. After `failed`, and after `close()`, it receives nothing more. */
export interface StreamListener<Answer> {
  /** A refusal ends the stream. */
  answer(answer: Answer | Refusal): void;
  failed(failure: StreamFailure, inDoubt: boolean): void;
}

/** What carries the calls and streams of one `SimMember`: the place of `Channel` in `src/etcd/grpc`. */
export interface Wire {
  /** Returns the cancellation: what was sent cannot be called back. */
  call(request: UnaryRequest, listener: CallListener): () => void;
  keepalive(listener: StreamListener<LeaseAnswer>, token?: string): ServerStream<bigint>;
  watch(listener: StreamListener<WatchAnswer>, token?: string): ServerStream<WatchCommand>;
  /** Closes the connection as soon as no call and no stream uses it. */
  retire(): void;
}
