import type { WatchEvent, WatchRequest } from "../../../../src/etcd/port.js";
import type { Interval } from "../bytes.js";

/** What a watch sends to its stream. */
export interface WatchResponse {
  /** -1: the answer to a progress request. */
  readonly watchId: number;
  readonly events: readonly WatchEvent[];
  readonly revision: bigint;
  /** Set when the watch ends because the revision that it needs is compacted. */
  readonly compacted: boolean;
}

/** The buffer of a stream, which its watches share. Returns false if it is full. */
export interface Channel {
  push(response: WatchResponse): boolean;
}

/** One watch of one stream (storage/mvcc/watchable_store.go). */
export interface Watcher {
  readonly watchId: number;
  readonly interval: Interval;
  readonly startRevision: bigint;
  /** The revision of the next event that it takes. */
  minRevision: bigint;
  readonly events: WatchRequest["events"];
  readonly channel: Channel;
}

/** Without the events that the watch leaves out; if none is left, nothing is sent. Returns false if the buffer is full. */
export function send({ watchId, events: wanted, channel }: Watcher, answer: Omit<WatchResponse, "watchId">) {
  const events = wanted === "ALL" ? answer.events : answer.events.filter(({ kind }) => kind === wanted);
  if (events.length === 0 && answer.events.length > 0) return true;
  return channel.push({ watchId, events, revision: answer.revision, compacted: answer.compacted });
}
