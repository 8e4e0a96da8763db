// The page of `tools/ui/` for the user of this machine who has started it.
// - It listens on 127.0.0.1 only. Each request must know the token of this run, which is compared in constant time: without
//   one it gets 401, with a wrong one 403, before the page sees it.
// - The token is in the address once; from then on it is in a cookie that scripts cannot read and other sites cannot use.
// - Releases need the flag `--release`, besides what the page itself asks for.
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { list } from "../../index.js";
import { command, parseInteger } from "./command.js";
import { CliError, EXIT, json } from "./io.js";
import type { PageJson } from "./json-types.js";

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Passes on the requests that know the token: in the address once, in a cookie from then on. The page removes it from the
 * address bar. No redirect does: after one from a page of another site, browsers withhold a strict cookie.
 */
function withToken(handler: Handler, token: string): Handler {
  return (request, response) => {
    const [, query = ""] = (request.url ?? "").split("?", 2);
    const given = new URLSearchParams(query).get("token") ?? undefined;
    const known = given ?? cookieOf(request);
    if (known === undefined) return refuse(response, 401, "open the address that leasehold ui has printed");
    // In constant time: of any two texts, the hashes have the same length.
    if (!timingSafeEqual(hash(known), hash(token)))
      return refuse(response, 403, "this address is no longer valid");
    if (given !== undefined)
      response.setHeader("Set-Cookie", `${cookieName(request)}=${token}; HttpOnly; SameSite=Strict; Path=/`);
    handler(request, response);
  };
}

const hash = (text: string): Buffer => createHash("sha256").update(text).digest();

/** Cookies are shared between the ports of a host. */
const cookieName = (request: IncomingMessage): string => `leasehold-${request.socket.localPort}`;

function cookieOf(request: IncomingMessage): string | undefined {
  const prefix = `${cookieName(request)}=`;
  const pairs = (request.headers.cookie ?? "").split(/; */);
  return pairs.find((pair) => pair.startsWith(prefix))?.slice(prefix.length);
}

function refuse(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    "Content-Type": "text/plain; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
  });
  response.end(`${text}\n`);
}

/** Only this machine reaches it. */
const HOST = "127.0.0.1";

export const ui = command({
  name: "ui",
  args: "[PREFIX]",
  positionals: [0, 1],
  summary: "serve a live page of locks and elections on this machine",
  help: [
    "Serves a page with the locks and elections whose names start with PREFIX, on 127.0.0.1, and prints its address. The address has a random token: do not share it. The page is live: it shows holders, waiters and what happened.",
    "The first request moves the token into a cookie. A request without a token gets 401, one with another token 403.",
    "It runs until it gets SIGINT, SIGTERM or SIGHUP.",
  ],
  flags: {
    port: { value: "N", text: "port to listen on; default: any free one" },
    release: { text: "let the page release holders and waiters by force, after a confirmation" },
  },
  async run({ positionals: [prefix = ""], flags, io, connect, signal, json: wantsJson }) {
    const port = parseInteger("port", flags.port ?? "0", { min: 0, max: 65_535 });
    const cluster = connect();
    // A prefix, an address or a password that is wrong ends the command here, in one line.
    await list(cluster, prefix, { limit: 1, signal });
    // Another file of the package, which no other command needs.
    const { lockPage } = await import("../ui/lock-page.js");
    const page = lockPage(cluster, { prefix, ...(flags.release && { authorize: () => true }) });
    // 256 bits that nobody can guess.
    const token = randomBytes(32).toString("base64url");
    const server = createServer(withToken(page, token));
    try {
      const url = `http://${HOST}:${await listen(server, port)}/?token=${token}`;
      io.stdout.write(
        wantsJson ? json({ url, prefix, release: flags.release === true } satisfies PageJson) : `${url}\n`,
      );
      await Promise.race([aborted(signal), once(server, "error").then(([error]) => Promise.reject(error))]);
    } finally {
      page.close();
      server.closeAllConnections();
      server.close();
    }
    signal.throwIfAborted();
    return EXIT.ok;
  },
});

/** Resolves with the port. */
async function listen(server: Server, port: number): Promise<number> {
  try {
    server.listen(port, HOST);
    await once(server, "listening");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "EADDRINUSE" && code !== "EACCES") throw error;
    const problem = code === "EACCES" ? "may not be used" : "is in use";
    throw new CliError(EXIT.usage, `--port ${port} ${problem}`, "give another one, or none");
  }
  return (server.address() as AddressInfo).port;
}

const aborted = (signal: AbortSignal): Promise<unknown> =>
  signal.aborted ? Promise.resolve() : once(signal, "abort");
