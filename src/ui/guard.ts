import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { RELEASE_HEADER } from "./protocol.js";

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
export function isOurPage(headers: IncomingHttpHeaders): boolean {
  const site = headers["sec-fetch-site"];
  return (
    headers[RELEASE_HEADER] === "1" &&
    (site === undefined || site === "same-origin") &&
    hostOf(headers.origin) === headers.host?.toLowerCase()
  );
}

/** Without the scheme: behind a proxy with TLS, only the browser knows it. */
const hostOf = (origin = ""): string | undefined => /^https?:\/\/(.+)$/.exec(origin.toLowerCase())?.[1];
