// A service that examples call while they hold a lock. It answers under the test's control, so that the test can act in
// the middle of their work.
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers: http.IncomingHttpHeaders;
  /** Resolves when the client has disconnected without an answer. */
  readonly gone: Promise<void>;
  answer(text: string): void;
}

export class Upstream {
  /** All requests received, in order. */
  readonly asked: Asked[] = [];
  readonly #server = http.createServer((request, response) => this.#hear(request, response));
  readonly #waiting: ((asked: Asked) => void)[] = [];
  #taken = 0;

  static async start(): Promise<Upstream> {
    const upstream = new Upstream();
    upstream.#server.listen(0, "127.0.0.1");
    await once(upstream.#server, "listening");
    return upstream;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The next request that was not yet taken. */
  next(): Promise<Asked> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#pass();
    });
  }

  #hear({ method = "", url = "", headers }: http.IncomingMessage, response: http.ServerResponse): void {
    const gone = once(response, "close").then(() => undefined);
    this.asked.push({ method, path: url, headers, gone, answer: (text) => void response.end(text) });
    this.#pass();
  }

  #pass(): void {
    while (this.#waiting.length > 0 && this.#taken < this.asked.length) {
      this.#waiting.shift()?.(this.asked[this.#taken++]!);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }
}
