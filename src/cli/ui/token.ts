import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** 256 bits that nobody can guess. */
export const newToken = (): string => randomBytes(32).toString("base64url");

/**
 * Passes on the requests that know the token: in the address once, in a cookie from then on. The page removes it from the
 * address bar. No redirect does: after one from a page of another site, browsers withhold a strict cookie.
 */
export function withToken(handler: Handler, token: string): Handler {
  return (request, response) => {
    const [, query = ""] = (request.url ?? "").split("?", 2);
    const given = new URLSearchParams(query).get("token") ?? undefined;
    const known = given ?? cookieOf(request);
    if (known === undefined) return refuse(response, 401, "open the address that leasehold ui has printed");
    if (!isSame(known, token)) return refuse(response, 403, "this address is no longer valid");
    if (given !== undefined)
      response.setHeader("Set-Cookie", `${cookieName(request)}=${token}; HttpOnly; SameSite=Strict; Path=/`);
    handler(request, response);
  };
}

/** In constant time: of any two texts, the hashes have the same length. */
const isSame = (one: string, other: string): boolean => timingSafeEqual(hash(one), hash(other));

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
