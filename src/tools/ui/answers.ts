import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { type Cluster, forceRelease, inspect } from "../../index.js";
import { checkName } from "../../base/options/check.js";
import { ASSETS } from "./assets.js";
import type { Hub } from "./hub.js";
import { RELEASE_HEADER, type ReleaseRequest } from "./protocol.js";
import { MAX_KEY } from "./source.js";

const FILES: ReadonlyMap<string, readonly [type: string, text: () => string]> = new Map([
  ["", ["text/html", () => ASSETS.html]],
  ["page.css", ["text/css", () => ASSETS.css]],
  ["page.js", ["text/javascript", () => ASSETS.js]],
]);

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly url: URL;
}

/** The options with their defaults. */
export interface CheckedPage {
  readonly prefix: string;
  readonly authorize: (request: IncomingMessage) => Promise<boolean>;
  /** The path of the page, which ends with a slash. */
  readonly base: string;
  readonly hosts: readonly string[];
}

/** Answers the requests of the page. */
export class Answers {
  constructor(
    private readonly cluster: Cluster,
    private readonly options: CheckedPage,
    private readonly hub: Hub,
  ) {}

  /** Never rejects. */
  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    protect(response);
    response.on("error", () => {});
    // A server may have cut the path for its router; the page needs the whole one.
    const { originalUrl } = request as { readonly originalUrl?: unknown };
    const target = typeof originalUrl === "string" ? originalUrl : (request.url ?? "");
    const { base, hosts } = this.options;
    if (!isOurHost(request.headers, hosts))
      return end(response, 421, "this page is not served under that host name");
    const url = target.startsWith("/") ? new URL(`http://page${target.replace(/^\/+/, "/")}`) : undefined;
    if (url && `${url.pathname}/` === base) {
      response.setHeader("Location", base);
      return end(response, 308, base);
    }
    if (!url?.pathname.startsWith(base)) return end(response, 404, "there is no such page");
    await this.#route(url.pathname.slice(base.length), { request, response, url });
  }

  async #route(file: string, exchange: Exchange): Promise<void> {
    const { request, response } = exchange;
    const method = file === "release" ? "POST" : "GET";
    if (!FILES.has(file) && file !== "events" && file !== "release")
      return end(response, 404, "there is no such page");
    if (request.method !== method && !(method === "GET" && request.method === "HEAD")) {
      response.setHeader("Allow", method);
      return end(response, 405, `only ${method} is allowed here`);
    }
    if (file === "release") return this.#release(exchange);
    if (file === "events") return this.#events(exchange);
    const [type = "", text] = FILES.get(file) ?? [];
    response.setHeader("Content-Type", `${type}; charset=utf-8`);
    response.end(text?.());
  }

  async #events({ request, response, url }: Exchange): Promise<void> {
    const name = url.searchParams.get("queue");
    // A viewer may leave while `authorize` runs: who listens later hears nothing of it.
    let isGone = false;
    response.on("close", () => (isGone = true));
    const mayRelease = await this.options.authorize(request);
    // Or it has left before, behind a middleware that waits.
    if (isGone || response.destroyed) return;
    if (request.method !== "GET") return end(response, 405, "only GET is allowed here");
    if (this.hub.full) return end(response, 503, "too many viewers");
    if (name === null) return this.hub.openOverview(response, mayRelease);
    if (!isName(name) || !name.startsWith(this.options.prefix))
      return end(response, 404, "this page does not show that name");
    this.hub.openDetail(response, name);
  }

  async #release({ request, response }: Exchange): Promise<void> {
    if (!isOurPage(request.headers)) return end(response, 403, "only the page itself may release");
    if (!(await this.options.authorize(request))) return end(response, 403, "you may not release");
    const [status, text] = await this.#delete(await bodyOf(request));
    end(response, status, text);
  }

  /** Deletes the key that the request names, if it still has the same create revision. */
  async #delete(body: string | undefined): Promise<Answer> {
    const wanted = parse(body);
    if (wanted === undefined) return [400, "expected JSON with name, key and revision"];
    const { name, key, revision } = wanted;
    if (key.length > MAX_KEY) return [400, "the key is too long for this page: use leasehold release"];
    if (!name.startsWith(this.options.prefix)) return [403, "this page does not show that name"];
    try {
      const { holders, waiters } = await inspect(this.cluster, name, { limit: LIMIT });
      const found = [...holders, ...waiters].find(
        (each) => each.key === key && String(each.revision) === revision,
      );
      const released = found && (await forceRelease(this.cluster, found));
      return released ? [200, "released"] : [409, "already gone"];
    } catch (error) {
      if (error instanceof RangeError) return [400, "no lock can have that name"];
      return [502, (error as Error).message];
    }
  }
}

function isName(name: string): boolean {
  try {
    checkName(name);
    return true;
  } catch {
    return false;
  }
}

function end(response: ServerResponse, status: number, text: string): void {
  response.statusCode = status;
  response.setHeader("Content-Type", "text/plain; charset=utf-8");
  response.end(`${text}\n`);
}

/** For every response. The page needs its own files and its own events, and nothing else. */
const HEADERS = {
  "Content-Security-Policy": [
    ...["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"],
    ...["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"],
    "require-trusted-types-for 'script'",
  ].join("; "),
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Cache-Control": "no-store",
} as const;

export function protect(response: ServerResponse): void {
  for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
}

/** This machine, under the names that only it has. */
export const LOOPBACK: readonly string[] = ["localhost", "127.0.0.1", "[::1]"];

/**
 * Whether the browser has asked for one of these hosts, with or without a port. A site that lets its own name point to
 * this server (DNS rebinding) has another one.
 */
export function isOurHost({ host }: IncomingHttpHeaders, hosts: readonly string[]): boolean {
  const asked = host?.toLowerCase() ?? "";
  return hosts.some((own) => own === asked || own === asked.replace(/:\d+$/, ""));
}

/** Whether the page itself has sent this request: another site can send neither this header nor this origin. */
function isOurPage(headers: IncomingHttpHeaders): boolean {
  const site = headers["sec-fetch-site"];
  return (
    headers[RELEASE_HEADER] === "1" &&
    (site === undefined || site === "same-origin") &&
    hostOf(headers.origin) === headers.host?.toLowerCase()
  );
}

/** Without the scheme: behind a proxy with TLS, only the browser knows it. */
const hostOf = (origin = ""): string | undefined => /^https?:\/\/(.+)$/.exec(origin.toLowerCase())?.[1];

/** A name has at most 1,024 bytes and a key a little more; JSON may need six characters for each. */
const MAX_BODY = 16_384;
/** As many as `inspect` reports. */
const LIMIT = 1000;

/** The status and the text of the answer. */
type Answer = readonly [status: number, text: string];

/** Undefined if it is too long or was cut off. */
async function bodyOf(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > MAX_BODY) return undefined;
      chunks.push(chunk);
    }
  } catch {
    return undefined;
  }
  return Buffer.concat(chunks).toString();
}

function parse(text: string | undefined): ReleaseRequest | undefined {
  if (text === undefined) return undefined;
  try {
    const { name, key, revision } = Object(JSON.parse(text)) as Record<string, unknown>;
    const areTexts = [name, key, revision].every((value) => typeof value === "string");
    return areTexts ? ({ name, key, revision } as ReleaseRequest) : undefined;
  } catch {
    return undefined;
  }
}
