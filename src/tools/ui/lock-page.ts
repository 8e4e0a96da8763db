import type { IncomingMessage, ServerResponse } from "node:http";
import type { Cluster } from "../../index.js";
import {
  checkFunction,
  checkOptions,
  checkPrefix,
  type Options,
  rangeError,
  typeError,
} from "../../base/options/check.js";
import { systemClock } from "../../base/util/clock.js";
import { boardDoorOf } from "../../observe/board.js";
import { Answers, type CheckedPage, LOOPBACK } from "./answers.js";
import { Hub } from "./hub.js";

/** The options of `lockPage()`. */
export interface LockPageOptions {
  /** Only queues whose names start with it are shown, and can be released. @default "" */
  readonly prefix?: string | undefined;
  /**
   * Whether the sender of this request may release holders and waiters. Called for each release, and for each view, which
   * shows the buttons accordingly. Without it, and when it throws, nobody may.
   */
  readonly authorize?: ((request: IncomingMessage) => boolean | Promise<boolean>) | undefined;
  /** The whole path under which the server passes requests to the page, such as "/ops/locks". @default "/" */
  readonly basePath?: string | undefined;
  /**
   * The names, with or without a port, by which browsers reach the server, behind a proxy the public ones: what a `Host` header may
   * have. Requests for others get 421. @default localhost, 127.0.0.1 and [::1], with any port
   */
  readonly hosts?: readonly string[] | undefined;
}

/** A handler for Node's `http.createServer`, or for a framework that passes Node's request and response on. */
export interface LockPage {
  (request: IncomingMessage, response: ServerResponse): void;
  /** Ends all open views, and stops reading from etcd. The cluster stays open. Idempotent. */
  close(): void;
}

/**
 * Returns the handler of a live page with the locks and elections of a cluster: who holds, who waits, and what happened
 * since this call. It follows all queues under `prefix` from now on until `close()`, and needs the right to read them; it
 * needs no session. Whoever reaches the handler may read: put it behind your own login, or listen on 127.0.0.1 only.
 *
 * It follows them by one read and one watch, and refuses a prefix with more than 20,000 keys. Leases are read only for a queue that a
 * viewer has open, one request each, every two seconds, and up to four times a second for at most 20 holders and waiters; the counts
 * of `once` every ten seconds. A free queue stays in the table for five minutes, and a history has the last 60 holds since this call.
 *
 * At most 64 viewers have a stream at a time, each with at most 64 KiB in the memory of the server. One that reads nothing for 30
 * seconds is dropped.
 * @throws {TypeError | RangeError} on bad options.
 */
export function lockPage(cluster: Cluster, options?: LockPageOptions): LockPage {
  const checked = checkPage(options);
  const { prefix } = checked;
  const door = boardDoorOf(cluster);
  if (door === undefined) throw typeError("cluster", "a Cluster, made by connect()", cluster);
  const clock = systemClock;
  const hub = new Hub({ cluster, clock, prefix, door });
  const answers = new Answers(cluster, checked, hub);
  const handler = (request: IncomingMessage, response: ServerResponse): void =>
    void answers.answer(request, response);
  return Object.assign(handler, { close: () => hub.close() });
}

/** @throws {TypeError | RangeError} that names the option, the rule and the value. */
function checkPage(options: LockPageOptions | undefined): CheckedPage {
  const given = checkOptions("lockPage", options, ["prefix", "authorize", "basePath", "hosts"]);
  return {
    prefix: given["prefix"] === undefined ? "" : checkPrefix(given["prefix"]),
    authorize: authorizeOf(given),
    base: basePathOf(given["basePath"] ?? "/"),
    hosts: hostsOf(given["hosts"] ?? LOOPBACK),
  };
}

function authorizeOf({ authorize }: Options): CheckedPage["authorize"] {
  if (authorize === undefined) return () => Promise.resolve(false);
  checkFunction("authorize", authorize);
  const ask = authorize as (request: IncomingMessage) => unknown;
  return async (request) => {
    try {
      return (await ask(request)) === true;
    } catch {
      return false;
    }
  };
}

function basePathOf(value: unknown): string {
  const rule = 'a path that starts with "/", such as "/locks"';
  if (typeof value !== "string") throw typeError("basePath", rule, value);
  if (!/^\/[\w.~/-]*$/.test(value) || value.includes("//")) throw rangeError("basePath", rule, value);
  return value.endsWith("/") ? value : `${value}/`;
}

function hostsOf(value: unknown): readonly string[] {
  const rule = "an array of one or more host names";
  if (!Array.isArray(value)) throw typeError("hosts", rule, value);
  if (value.length === 0) throw rangeError("hosts", rule, "none of them");
  return Array.from(value as readonly unknown[], (host) => {
    if (typeof host !== "string") throw typeError("hosts", rule, host);
    if (!/^[\w.:[\]-]+$/.test(host)) throw rangeError("hosts", "free of schemes and paths", host);
    return host.toLowerCase();
  });
}
