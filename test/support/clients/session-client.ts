import { once } from "node:events";
import { expect } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import type { EtcdMember } from "../etcd/etcd.js";
import { placesOf } from "./server-view.js";

/** A client as in another process: a cluster, a session, and every state of this session. */
export async function openClient(hosts: string | readonly string[], ttlSeconds: number) {
  const cluster = connect({ hosts });
  const session = await Session.open(cluster, { ttlSeconds });
  const states: string[] = [];
  session.addEventListener("statechange", ({ state }) => states.push(state));
  const mutex = (name: string) => new Mutex(session, name);
  const dispose = () => cluster.close({ drainMs: 0 });
  return { cluster, session, states, mutex, [Symbol.asyncDispose]: dispose };
}

export type Client = Awaited<ReturnType<typeof openClient>>;

/** Waits until etcd has this many places under the name. */
export const queued = async (member: EtcdMember, name: string, count: number): Promise<unknown> =>
  expect.poll(() => placesOf(member, name), { timeout: 10_000 }).toHaveLength(count);

/** The reason of the abort, past or future. */
export async function abortOf(signal: AbortSignal): Promise<unknown> {
  if (!signal.aborted) await once(signal, "abort");
  return signal.reason;
}

/** Whether a promise has been fulfilled yet. */
export function settledYet(promise: Promise<unknown>): () => boolean {
  let settled = false;
  promise.then(
    () => (settled = true),
    () => {},
  );
  return () => settled;
}

/** When the session would be lost without another renewal, in `performance.now()` time. */
export const deadlineOf = (session: Session): number => performance.now() + session.remainingMs();
