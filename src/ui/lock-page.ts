import type { IncomingMessage, ServerResponse } from "node:http";
import type { Cluster } from "../index.js";
import { typeError } from "../options/check.js";
import { systemClock } from "../util/clock.js";
import { boardDoorOf } from "../view/board.js";
import { Answers, checkPage, type LockPageOptions } from "./answers.js";
import { Hub } from "./hub.js";
import { boardSource } from "./source.js";

export type { LockPageOptions } from "./answers.js";

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
 * @throws {TypeError | RangeError} on bad options.
 */
export function lockPage(cluster: Cluster, options?: LockPageOptions): LockPage {
  const checked = checkPage(options);
  const { prefix } = checked;
  const door = boardDoorOf(cluster);
  if (door === undefined) throw typeError("cluster", "a Cluster, made by connect()", cluster);
  const clock = systemClock;
  const openSource = boardSource({ cluster, door, prefix, clock });
  const hub = new Hub({ cluster, clock, prefix, openSource });
  const answers = new Answers(cluster, checked, hub);
  const handler = (request: IncomingMessage, response: ServerResponse): void =>
    void answers.answer(request, response);
  return Object.assign(handler, { close: () => hub.close() });
}
