import type { IncomingMessage, ServerResponse } from "node:http";
import { checkName } from "../options/check.js";
import type { Cluster } from "../index.js";
import { ASSETS } from "./assets.js";
import { isOurHost, isOurPage, protect } from "./guard.js";
import type { Hub } from "./hub.js";
import type { CheckedPage } from "./options.js";
import { release } from "./release.js";

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
    if (!isOurHost(request.headers, hosts)) return end(response, 421, "this page has another host name");
    const url = target.startsWith("/") ? new URL(`http://page${target.replace(/^\/+/, "/")}`) : undefined;
    if (url && `${url.pathname}/` === base) return redirect(response, base);
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
    const mayRelease = await this.options.authorize(request);
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
    const { prefix } = this.options;
    const [status, text] = await release(request, { cluster: this.cluster, prefix });
    end(response, status, text);
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

function redirect(response: ServerResponse, to: string): void {
  response.setHeader("Location", to);
  end(response, 308, to);
}
