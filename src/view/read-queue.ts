import { EtcdRefusedError, EtcdUnavailableError } from "../errors.js";
import type { KeyValue, Range } from "../etcd/port.js";
import type { CallPolicy } from "../etcd/retry.js";
import type { CheckedWait } from "../options/check.js";
import { queueRange } from "../queue/lock-mode.js";
import { type EtcdServices, servicesOf } from "../session/connection.js";
import { settleWithin } from "../util/settle.js";
import { entryOf, inOrder, type InspectedKey, isRead, keyOf, withValue } from "./entry.js";

/** Default `timeoutMs` of every call here. */
const TIMEOUT_MS = 5000;

/** How an error names the operation, and its limits. */
interface Question {
  readonly what: string;
  readonly wait: CheckedWait;
}

/** What all requests of one call share. */
export interface Asking {
  readonly services: EtcdServices;
  readonly policy: CallPolicy;
}

/**
 * Runs a call that needs no session. After its time limit, on abort and when the cluster is closed, it sends no further
 * request. @throws EtcdUnavailableError | EtcdRefusedError | SessionClosedError
 */
export async function ask<T>(
  cluster: object,
  { what, wait }: Question,
  call: (asking: Asking) => Promise<T>,
): Promise<T> {
  const services = servicesOf(cluster);
  const { aborts, closed, client } = services;
  closed.throwIfAborted();
  const { signal, timeoutMs = TIMEOUT_MS } = wait;
  signal?.throwIfAborted();
  const stop = new AbortController();
  const unlisten = aborts.add(closed, () => stop.abort(closed.reason));
  const limitIsGiven = wait.timeoutMs !== undefined;
  const policy = { what, giveUpMs: timeoutMs, limitIsGiven, signal: stop.signal };
  try {
    return await settleWithin(call({ services, policy }), { signal, timeoutMs }, services, {
      onTimeout: () => new EtcdUnavailableError(what, client.hosts.lastFailures),
      onGiveUp: () => stop.abort(),
    });
  } finally {
    unlisten();
  }
}

/** etcd has compacted the revision of this read, or lost it in a restore. */
export const revisionIsGone = (error: unknown): boolean =>
  error instanceof EtcdRefusedError && error.details.includes("mvcc: required revision");

/** Repeats `read`, whose requests are all for one revision, until etcd has had it throughout. */
export async function atOneRevision<T>(read: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await read();
    } catch (error) {
      if (!revisionIsGone(error)) throw error;
    }
  }
}

/** All keys of a queue at one revision, in its order. */
export interface QueueKeys {
  readonly name: string;
  readonly revision: bigint;
  readonly entries: readonly InspectedKey[];
}

/** What one request asks for. */
interface Page {
  readonly limit: number;
  readonly keysOnly: boolean;
}

/** A key with its revisions takes about 100 bytes. */
const KEYS: Page = { limit: 1000, keysOnly: true };
/** Other clients may have written values of 1.5 MiB, and an answer has at most 256 MiB. */
export const VALUES: Page = { limit: 100, keysOnly: false };
const MAX_VALUES = 32;

/** The keys without values and leases, which are read where they are needed. `revision`: default the present one. */
export const readKeys = (asking: Asking, name: string, revision?: bigint): Promise<QueueKeys> =>
  readPages(asking, { name, page: KEYS, keep: (kv) => keyOf(name, kv) }, revision);

/** The keys with what their values say. */
export const readEntries = (asking: Asking, name: string): Promise<QueueKeys> =>
  readPages(asking, { name, page: VALUES, keep: (kv) => entryOf(name, kv) });

interface Reading {
  readonly name: string;
  readonly page: Page;
  readonly keep: (kv: KeyValue) => InspectedKey;
}

async function readPages(asking: Asking, { name, page, keep }: Reading, at?: bigint): Promise<QueueKeys> {
  const entries: InspectedKey[] = [];
  const take = (kvs: readonly KeyValue[]): void => void kvs.forEach((kv) => entries.push(keep(kv)));
  const revision = await readRange(asking, { ...queueRange(name), ...page }, { at, take });
  return { name, revision, entries: inOrder(entries) };
}

interface Taking {
  readonly at?: bigint | undefined;
  /** Called for each page. What it throws ends the reading. */
  readonly take: (kvs: readonly KeyValue[]) => void;
}

/**
 * All keys of a range at one revision: `at`, or the present one. Resolves with it.
 * In pages by key, because a page by create revision could end between two keys of one revision.
 */
export async function readRange(
  { services: { client }, policy }: Asking,
  range: Range,
  { at, take }: Taking,
): Promise<bigint> {
  let revision = at;
  for (let key: Range["key"] | undefined = range.key; key !== undefined;) {
    const page = { ...range, key, ...(revision !== undefined && { revision }) };
    const { header, kvs, more } = await client.range(page, policy);
    revision ??= header.revision;
    take(kvs);
    const last = kvs.at(-1);
    key = more && last ? after(last.key) : undefined;
  }
  return revision ?? 0n;
}

/** The smallest key behind `key`. */
export const after = (key: Buffer): Buffer => Buffer.concat([key, Buffer.of(0)]);

/** The same keys with what the values of `wanted` say. */
export async function readValues(
  { services, policy }: Asking,
  queue: QueueKeys,
  wanted: readonly InspectedKey[],
): Promise<QueueKeys> {
  const { name, revision } = queue;
  const missing = wanted.filter((entry) => !isRead(entry));
  const read = new Map<InspectedKey, InspectedKey>();
  for (let n = 0; n < missing.length; n += MAX_VALUES) {
    const batch = missing.slice(n, n + MAX_VALUES);
    const ranges = batch.map(({ key }) => ({ key, revision }));
    const answer = await services.client.ranges(ranges, policy);
    for (const [i, entry] of batch.entries()) {
      const kv = answer.ranges[i]?.kvs[0];
      if (kv) read.set(entry, withValue(name, entry, kv));
    }
  }
  return { ...queue, entries: queue.entries.map((entry) => read.get(entry) ?? entry) };
}
