import { failureOf, type Status } from "./refusals.js";
import { UnansweredError, type StreamHandlers } from "../port.js";

/** The part of a gRPC stream that this library uses. */
export interface Duplex<Request, Answer> {
  write(request: Request): unknown;
  end(): void;
  cancel(): void;
  on(event: "data", listener: (answer: Answer) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "end", listener: () => void): unknown;
}

export interface RequestStream<Request> {
  write(request: Request): void;
  close(): void;
}

/** The host of a stream, and how its call ended, once gRPC has reported it. */
export interface Line {
  readonly host: string;
  readonly status: Status | undefined;
}

/** etcd3 opens streams asynchronously: earlier writes are kept. `ended` is called once, and not after `close()`. */
export function openStream<Request, Raw, Answer>(
  opening: Promise<Duplex<Request, Raw>>,
  line: Line,
  handlers: StreamHandlers<Answer> & { readonly over: () => void; read(raw: Raw): Answer },
): RequestStream<Request> {
  const unsent: Request[] = [];
  let stream: Duplex<Request, Raw> | undefined;
  let over = false;
  const fail = (error: Error): void => {
    if (over) return;
    over = true;
    handlers.over();
    handlers.ended(line.status ? failureOf(line.status, line.host, false) : error);
  };
  const take = (raw: Raw): void => {
    let answer: Answer;
    try {
      answer = handlers.read(raw);
    } catch (error) {
      if (stream) closeStream(stream, () => undefined);
      return fail(new UnansweredError("the answer makes no sense", { cause: error }));
    }
    guarded(() => handlers.answer(answer));
  };
  opening.then(
    (opened) => {
      stream = opened;
      opened.on("error", fail);
      opened.on("end", () => fail(new UnansweredError("the member ended the stream")));
      opened.on("data", (raw) => over || take(raw));
      if (over) closeStream(opened, handlers.over);
      else for (const request of unsent.splice(0)) opened.write(request);
    },
    (error: Error) => (over ? handlers.over() : fail(error)),
  );
  return {
    write: (request) => void (over || (stream ? stream.write(request) : unsent.push(request))),
    close: () => {
      if (over) return;
      over = true;
      if (stream) closeStream(stream, handlers.over);
    },
  };
}

/**
 * `end()` alone leaks the member's watchers, `cancel()` alone counts as a failure of the host. Both are deferred: this may
 * run within the callback in which node:http2 reads from the same connection, where a reset of another stream never returns
 * (seen on Node.js 20: the process spins, and its memory grows).
 */
function closeStream(stream: { end(): void; cancel(): void }, over: () => void): void {
  setImmediate(() => {
    stream.end();
    stream.cancel();
    over();
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
