// A client of the page's server, without a browser: requests with any headers, and its events.
import http from "node:http";

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly text: string;
}

export interface Ask {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** `fetch` would set and hide headers of its own. */
export function ask(url: string, { method = "GET", headers = {}, body }: Ask = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method, headers, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (more: string) => (text += more));
      response.on("end", () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text }),
      );
      response.on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}

/** An event of a stream. */
export interface Heard {
  readonly event: string;
  readonly data: Record<string, unknown>;
}

/** The events of a stream, from the first one on. */
export class Listener {
  readonly heard: Heard[] = [];
  readonly #checks = new Set<() => void>();
  readonly #request: http.ClientRequest;
  status = 0;
  ended = false;

  constructor(url: string, headers: Readonly<Record<string, string>> = {}) {
    this.#request = http.get(url, { headers, agent: false }, (response) => {
      this.status = response.statusCode ?? 0;
      let rest = "";
      response.setEncoding("utf8");
      response.on("data", (text: string) => {
        const parts = (rest + text).split("\n\n");
        rest = parts.pop() ?? "";
        for (const part of parts) this.#take(part);
      });
      response.on("close", () => this.#end());
      response.on("error", () => this.#end());
    });
    this.#request.on("error", () => this.#end());
  }

  /** Resolves with the first event that fits, also an earlier one. */
  until(fits: (heard: Heard) => boolean): Promise<Heard> {
    return this.#when(() => this.heard.find(fits));
  }

  untilEnd(): Promise<true> {
    return this.#when(() => this.ended || undefined);
  }

  close(): void {
    this.#request.destroy();
  }

  #when<T>(look: () => T | undefined): Promise<T> {
    return new Promise((resolve) => {
      const check = (): void => {
        const found = look();
        if (found === undefined) return;
        this.#checks.delete(check);
        resolve(found);
      };
      this.#checks.add(check);
      check();
    });
  }

  #take(part: string): void {
    const [, event = "", data = ""] = /^event: (.*)\ndata: (.*)$/.exec(part) ?? [];
    if (event !== "") this.heard.push({ event, data: JSON.parse(data) as Heard["data"] });
    for (const check of this.#checks) check();
  }

  #end(): void {
    this.ended = true;
    for (const check of this.#checks) check();
  }
}
