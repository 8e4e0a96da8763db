import type { StreamFailure } from "../../../src/etcd/http2/failure.js";
import type { Refusal, ServerStream, SimServer, UnaryReply, UnaryRequest } from "../etcd/types.js";
import type { Exchange, SimConnection } from "./connection.js";
import { OrderedPath } from "./link.js";
import type { CallListener, StreamListener } from "./wire.js";

/** One unary call on a connection. */
export class UnaryExchange implements Exchange {
  #sent = false;
  #over = false;

  constructor(
    private readonly connection: SimConnection,
    private readonly request: { readonly server: SimServer; readonly request: UnaryRequest },
    private readonly listener: CallListener,
  ) {}

  opened(): void {
    if (this.#over) return;
    const { link } = this.connection;
    const { request } = this.request;
    this.#sent = true;
    this.listener.sent();
    const isLost = link.random.chance(link.profile.loseRequest);
    if (isLost) link.lose("request", request);
    else link.send("request", () => this.#execute(), request);
  }

  failed(failure: StreamFailure): void {
    if (this.#over) return;
    this.#over = true;
    this.listener.failed(failure, this.#sent);
  }

  cancel(): void {
    this.#over = true;
    this.connection.remove(this);
  }

  abandoned(): void {
    this.#over = true;
  }

  /** Also if the caller has given up, and if its connection is over: it was sent. */
  #execute(): void {
    const { link } = this.connection;
    this.request.server.call(this.request.request, (reply) => {
      const what = { request: this.request.request, reply };
      const isLost = link.random.chance(link.profile.loseAnswer);
      if (isLost) link.lose("answer", what);
      else link.send("answer", () => this.connection.receive(() => this.#replied(reply)), what);
    });
  }

  #replied(reply: UnaryReply): void {
    if (this.#over) return;
    this.#over = true;
    this.connection.remove(this);
    this.listener.replied(reply);
  }
}

type OpenOnServer<Command, Answer> = (out: (answer: Answer | Refusal) => void) => ServerStream<Command>;

/** One stream on a connection. What is sent before the connection is open waits for it. */
export class StreamExchange<Command, Answer extends object> implements Exchange, ServerStream<Command> {
  readonly #requests: OrderedPath;
  readonly #answers: OrderedPath;
  #waiting: Command[] = [];
  /** Set while the member has the stream. */
  #server: ServerStream<Command> | undefined;
  #sent = false;
  #over = false;

  constructor(
    private readonly connection: SimConnection,
    private readonly openOnServer: OpenOnServer<Command, Answer>,
    private readonly listener: StreamListener<Answer>,
  ) {
    this.#requests = new OrderedPath(connection.link, "request");
    this.#answers = new OrderedPath(connection.link, "answer");
  }

  opened(): void {
    if (this.#over) return;
    this.#sent = true;
    this.#requests.send(() => this.#openOnServer(), "open");
    for (const command of this.#waiting) this.#transmit(command);
    this.#waiting = [];
  }

  send(command: Command): void {
    if (this.#over) return;
    if (this.#sent) this.#transmit(command);
    else this.#waiting.push(command);
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    this.#closeOnServer();
    this.connection.remove(this);
  }

  failed(failure: StreamFailure): void {
    if (this.#over) return;
    this.#over = true;
    this.#closeOnServer();
    this.listener.failed(failure, this.#sent);
  }

  abandoned(): void {
    this.#over = true;
    this.#closeOnServer();
  }

  #transmit(command: Command): void {
    this.#requests.send(() => this.#server?.send(command), command);
  }

  #openOnServer(): void {
    // A connection that is over opens no stream, though TCP may repeat what was sent on it.
    if (this.#over || this.connection.severed) return;
    const { serverEnds } = this.connection.link;
    serverEnds.add(this.#endOnServer);
    const stream = this.openOnServer((answer) => {
      // The member has ended the stream.
      if ("refused" in answer) serverEnds.delete(this.#endOnServer);
      this.#answers.send(() => this.connection.receive(() => this.#answered(answer)), answer);
    });
    if (serverEnds.has(this.#endOnServer)) this.#server = stream;
  }

  #endOnServer = (): void => {
    this.connection.link.serverEnds.delete(this.#endOnServer);
    this.#server?.close();
    this.#server = undefined;
  };

  /** The end of the stream arrives after all that was sent. */
  #closeOnServer(): void {
    if (this.#sent) this.#requests.send(this.#endOnServer, "close");
  }

  #answered(answer: Answer | Refusal): void {
    if (this.#over) return;
    if ("refused" in answer) {
      this.#over = true;
      this.connection.remove(this);
    }
    this.listener.answer(answer);
  }
}
