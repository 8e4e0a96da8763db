import { failureOf, type Status } from "./call.js";
import { UnansweredError, type StreamHandlers } from "./rpc.js";

/** What a gRPC stream is to this library. */
export interface Duplex<Request, Answer> {
  write(request: Request): unknown;
  end(): void;
  cancel(): void;
  on(event: "data", listener: (answer: Answer) => void): unknown;
  on(event: "error", listener: (error: Error & Partial<Status>) => void): unknown;
  on(event: "end", listener: () => void): unknown;
}

export interface Channel<Request> {
  write(request: Request): void;
  close(): void;
}

/** etcd3 opens streams asynchronously: what is written before is kept. `ended` is told once, and not after `close()`. */
export function openChannel<Request, Answer>(
  opening: Promise<Duplex<Request, Answer>>,
  host: string,
  handlers: StreamHandlers<Answer> & { over(): void },
): Channel<Request> {
  const unsent: Request[] = [];
  let stream: Duplex<Request, Answer> | undefined;
  let over = false;
  const finish = (): boolean => {
    if (over) return false;
    over = true;
    handlers.over();
    return true;
  };
  const fail = (error: Error & Partial<Status>): void => {
    if (finish()) handlers.ended(failure(error, host));
  };
  opening.then((opened) => {
    stream = opened;
    opened.on("error", fail);
    opened.on("end", () => fail(new UnansweredError("the member ended the stream")));
    opened.on("data", (answer) => over || guarded(() => handlers.answer(answer)));
    if (over) hangUp(opened);
    else for (const request of unsent.splice(0)) opened.write(request);
  }, fail);
  return {
    write: (request) => void (over || (stream ? stream.write(request) : unsent.push(request))),
    close: () => void (finish() && stream && hangUp(stream)),
  };
}

/** `end()` alone leaks the member's watchers, `cancel()` alone counts as a failure of the host. */
function hangUp(stream: { end(): void; cancel(): void }): void {
  stream.end();
  stream.cancel();
}

/** An exception here would leave the stream's promise chain as an unhandled rejection of nobody: make it a plain crash. */
function guarded(run: () => void): void {
  try {
    run();
  } catch (error) {
    process.nextTick(() => {
      throw error;
    });
  }
}

function failure(error: Error & Partial<Status>, host: string): Error {
  return typeof error.code === "number"
    ? failureOf({ code: error.code, details: error.details ?? error.message }, host)
    : error;
}
