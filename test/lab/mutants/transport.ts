// The rules of HTTP/2 and gRPC, broken on purpose.
import { t1, type Mutant } from "./mutant.js";

/** The longest value that a candidate may have: with its key, more than the 65,535 bytes that a new connection may send. */
const LONGEST_VALUE = 65_536;

export const TRANSPORT: readonly Mutant[] = [
  {
    name: "window-update-lost",
    wrong: "ignores that the peer accepts more data on the connection: after 64 KiB nothing is sent any more",
    patches: [
      {
        file: "etcd/http2/connection.js",
        from: "this.#sendWindow = widened(this.#sendWindow, bytes);",
        to: "void bytes;",
      },
    ],
    // Calls go on with a new connection when one on the old connection times out: only a request that no connection
    // can send stays unanswered.
    hunt: t1(["delete-key"], {
      of: "election",
      valueBytes: LONGEST_VALUE,
      workers: 2,
      lanes: 2,
      seconds: 10,
    }),
  },
  {
    name: "answer-to-another-call",
    wrong: "gives the answer to one call to the call before it, while that one is still open",
    patches: [
      {
        file: "etcd/http2/connection.js",
        from: "const stream = this.#known(streamId);",
        to: "const stream = this.#streams.get(streamId - 2) ?? this.#known(streamId);",
      },
    ],
    hunt: t1(["reorder"]),
  },
  {
    name: "goaway-forgets-calls",
    wrong: "takes GOAWAY for the word that no open call was processed, though it names the last one that was",
    patches: [
      {
        file: "etcd/http2/connection.js",
        from: ".filter(({ id }) => id === 0 || id > lastId)",
        to: ".filter(() => true)",
      },
    ],
    // Without goaway-joins: a join that finds its own key shows the process that its requests are repeated, and from then
    // on it takes no release that finds nothing for a loss.
    hunt: t1(["goaway-releases"], { ttlSeconds: 9 }),
  },
  {
    name: "goaway-taken-for-answer",
    wrong: "takes GOAWAY and the end of the connection for the answer that a call was not executed",
    patches: [
      {
        file: "etcd/http2/stream.js",
        from: "this.#end(failure, processed);",
        to: 'this.#end(failure, processed && failure.kind !== "left");',
      },
    ],
    hunt: t1(["goaway-releases"], { ttlSeconds: 9 }),
  },
  {
    name: "late-answer-accepted",
    wrong: "takes the late answer to a cancelled call for the answer to the next call of the same kind",
    patches: [
      {
        file: "etcd/http2/connection.js",
        from: "this.#streams.delete(stream.id);",
        to: "if (this.#streams.delete(stream.id)) (this.gone ??= new Map()).set(stream.id, stream.request.headers);",
      },
      {
        file: "etcd/http2/connection.js",
        from: "return this.#streams.get(id);",
        to: "return this.#streams.get(id) ?? [...this.#streams.values()].find(({ request }) => request.headers === this.gone?.get(id));",
      },
    ],
    // Another call's answer often has another shape, and then counts as none.
    hunt: t1(["late-answers"], { ttlSeconds: 9, seconds: 30, runs: 5, lastsMs: [2000, 4000] }),
  },
  {
    name: "closed-stream-goes-on",
    wrong: "does not reset a stream that was closed, and goes on to take its answers",
    patches: [
      {
        file: "etcd/http2/stream.js",
        from: "close() {\n        this.cancel();",
        to: "close() {",
      },
    ],
    hunt: t1(["lose-join-answers", "kill-waiter"]),
  },
  {
    name: "writes-reordered",
    wrong: "sends what was written in one turn in reverse order",
    patches: [
      {
        file: "etcd/http2/socket.js",
        from: "const COPIED_BYTES = 4096;",
        to: "const COPIED_BYTES = 0;",
      },
      {
        file: "etcd/http2/socket.js",
        from: "const parts = this.#parts;",
        to: "const parts = this.#parts.reverse();",
      },
    ],
    hunt: t1(["delete-key"]),
  },
  {
    name: "context-inherited",
    wrong:
      "connects in the async context of the first caller, in which all that the connection brings then runs",
    patches: [
      {
        file: "etcd/http2/socket.js",
        from: "inOwnContext(() => opened(target, onread))",
        to: "opened(target, onread)",
      },
      {
        file: "base/util/own-context.js",
        from: "tellOutside = callsIn(own)",
        to: "tellOutside = (tell) => tell()",
      },
    ],
    hunt: t1(["delete-key"], { seconds: 10 }),
  },
];
