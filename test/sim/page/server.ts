import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { systemClock } from "../../../src/base/util/clock.js";
import { EventStream } from "../../../src/tools/ui/event-stream.js";
import { isOurHost, LOOPBACK, protect } from "../../../src/tools/ui/answers.js";
import { BadRequest } from "./orders.js";
import { Table } from "./table.js";
import { scriptOfPage } from "./script.js";

/** Only this machine reaches it. */
const HOST = "127.0.0.1";
const MOST_BYTES = 100_000;
const CHECK_MS = 5000;

const fileOf = (name: string): string => readFileSync(fileURLToPath(new URL(name, import.meta.url)), "utf8");

type Post = (table: Table, body: Readonly<Record<string, unknown>>) => void | Promise<void>;

const text = (body: Readonly<Record<string, unknown>>, name: string): string => {
  const value = body[name];
  if (typeof value === "string") return value;
  throw new BadRequest(`Expected "${name}" to be a text`);
};

/** What the page's controls send. */
const POSTS: Readonly<Record<string, Post>> = {
  "/start": (table, body) => table.start(text(body, "query")),
  "/order": (table, body) => table.order(text(body, "order")),
  "/play": ({ session: { pacer } }) => pacer.play(),
  "/pause": ({ session: { pacer } }) => pacer.pause(),
  "/step": ({ session: { pacer } }) => pacer.step(),
  "/next": (table) => table.seek(),
  "/speed": ({ session: { pacer } }, { speed, skipsQuiet }) => {
    if (typeof speed !== "number" || !(speed >= 0.0001 && speed <= 100_000))
      throw new BadRequest("Expected a speed of 0.0001 to 100000");
    pacer.setSpeed(speed, skipsQuiet === true);
  },
  "/search": (table, body) => table.search(text(body, "mutant")),
  "/stop": (table) => table.stopSearch(),
};

/** Serves the page and its run. */
export class PageServer {
  readonly table: Table;
  readonly #server: Server;
  readonly #streams = new Set<EventStream>();
  readonly #timer = setInterval(() => this.#streams.forEach((stream) => stream.check()), CHECK_MS);
  readonly #files: Readonly<Record<string, readonly [type: string, content: string]>>;

  private constructor(script: string) {
    this.#files = {
      "/": ["text/html", fileOf("browser/index.html")],
      "/page.css": ["text/css", fileOf("../../../src/tools/ui/page/page.css")],
      "/sim.css": ["text/css", fileOf("browser/sim.css")],
      "/sim.js": ["text/javascript", script],
    };
    this.table = new Table((event, data) => this.#publish(event, data));
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  /** Port 0: any free one. */
  static async start(port = 0): Promise<PageServer> {
    const server = new PageServer(await scriptOfPage());
    await new Promise<void>((resolve, reject) => {
      server.#server.once("error", reject).listen(port, HOST, resolve);
    });
    return server;
  }

  get url(): string {
    return `http://${HOST}:${(this.#server.address() as AddressInfo).port}/`;
  }

  close(): void {
    clearInterval(this.#timer);
    this.table.close();
    for (const stream of this.#streams) stream.close();
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    protect(response);
    const [path = "/"] = (request.url ?? "/").split("?");
    if (!isOurHost(request.headers, LOOPBACK)) return refuse(response, 403, "this host is not served here");
    if (request.method === "POST") return this.#post(path, request, response);
    if (path === "/events") return this.#stream(response);
    const file = this.#files[path];
    if (file === undefined) return refuse(response, 404, `there is no ${path}`);
    response.writeHead(200, { "Content-Type": `${file[0]}; charset=utf-8` }).end(file[1]);
  }

  async #post(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const post = POSTS[path];
      if (post === undefined) return refuse(response, 404, `there is no ${path}`);
      // Another site's page can send neither this type nor this origin without being asked first.
      if (request.headers["content-type"] !== "application/json" || !isSameOrigin(request))
        return refuse(response, 403, "only the page itself may do that");
      await post(this.table, await bodyOf(request));
      response.writeHead(204).end();
    } catch (error) {
      if (error instanceof BadRequest) refuse(response, 400, error.message);
      else refuse(response, 500, String(error));
    }
  }

  #stream(response: ServerResponse): void {
    const stream = new EventStream(response, systemClock);
    this.table.greet((event, data) => stream.send(event, JSON.stringify(data)));
    this.#streams.add(stream);
    this.table.viewers = this.#streams.size;
    stream.onClose(() => {
      this.#streams.delete(stream);
      this.table.viewers = this.#streams.size;
    });
  }

  /** A slow reader misses frames: each has the whole state. */
  #publish(event: string, data: object): void {
    const json = JSON.stringify(data);
    for (const stream of this.#streams) if (stream.ready || event !== "frame") stream.send(event, json);
  }
}

const isSameOrigin = ({ headers: { origin, host } }: IncomingMessage): boolean =>
  origin === undefined || origin === `http://${host}`;

function refuse(response: ServerResponse, status: number, error: string): void {
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify({ error }));
}

async function bodyOf(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MOST_BYTES) throw new BadRequest(`Expected at most ${MOST_BYTES} bytes`);
    chunks.push(chunk);
  }
  try {
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString() || "{}");
    if (typeof body === "object" && body !== null) return body as Record<string, unknown>;
  } catch {
    // Reported below.
  }
  throw new BadRequest("Expected a JSON object");
}
