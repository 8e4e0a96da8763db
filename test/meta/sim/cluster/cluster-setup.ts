// A simulated etcd of several members, with virtual time that a test advances itself.
import type { RangeAnswer, WatchAnswer } from "../../../../src/etcd/port.js";
import type { Quirks } from "../../../../src/testing/memory/quirks.js";
import {
  type SimVersion,
  type StreamMetadata,
  type UnaryReply,
  type UnaryRequest,
  isRefusal,
} from "../../../../src/testing/memory/protocol.js";
import { SimEtcd } from "../../../../src/testing/memory/etcd.js";
import { Random } from "../../../../src/testing/memory/random.js";
import { ManualScheduler, put, txn } from "../etcd-setup.js";

export interface Asked {
  /** The text of the refusal, or "ok". */
  said: string | undefined;
  answer: object | undefined;
  /** When it was answered. */
  at: number;
}

export interface Setting {
  readonly size?: number;
  readonly version?: SimVersion;
  readonly quirks?: Partial<Quirks>;
  readonly seed?: number;
}

export function several({ size = 3, version = "3.6", quirks = {}, seed = 1 }: Setting = {}) {
  const scheduler = new ManualScheduler();
  const etcd = new SimEtcd({ scheduler, random: new Random(`${seed}`), version, quirks, members: size });
  const cluster = etcd.cluster!;
  const lead = (): number => cluster.leader!.node.index;
  const followers = (): number[] =>
    cluster.nodes.map(({ index }) => index).filter((place) => place !== lead());
  const send = (place: number, request: UnaryRequest): Asked => {
    const asked: Asked = { said: undefined, answer: undefined, at: NaN };
    const replied = (reply: UnaryReply): void => {
      asked.at = scheduler.now;
      asked.said = isRefusal(reply) ? reply.refused : "ok";
      if (!isRefusal(reply)) asked.answer = reply.answer as object;
    };
    etcd.members[place]!.call(request, replied);
    return asked;
  };
  /** Sends a request, and waits a moment for the answer. */
  const ask = <Answer>(place: number, request: UnaryRequest, ms = 50): Answer => {
    const asked = send(place, request);
    scheduler.advance(ms);
    if (asked.answer === undefined) throw new Error(asked.said ?? "no answer");
    return asked.answer as Answer;
  };
  const isolate = (place: number): void => {
    for (const { index } of cluster.nodes) if (index !== place) cluster.cut(place, index);
  };
  const shatter = (): void => {
    for (const { index } of cluster.nodes) isolate(index);
  };
  /** Until a member leads with a majority that is not the one at `not`. */
  const untilLed = (not?: number): void => {
    for (let ms = 0; ms < 20_000 && (cluster.leader === undefined || lead() === not); ms++)
      scheduler.advance(1);
    if (cluster.leader === undefined || lead() === not) throw new Error("no new leader");
  };
  const keysAt = (place: number): string[] => {
    const range = { key: "\0", end: "\0", serializable: true };
    return ask<RangeAnswer>(place, { kind: "range", range }, 0).kvs.map(({ key }) => key.toString());
  };
  const watch = (place: number, metadata?: StreamMetadata) => {
    const received: { at: number; answer: WatchAnswer | string }[] = [];
    const stream = etcd.members[place]!.watch((answer) => {
      received.push({ at: scheduler.now, answer: isRefusal(answer) ? answer.refused : answer });
    }, metadata);
    stream.send({ create: { watchId: 1, key: "\0", end: "\0", startRevision: 0n, events: "ALL" } });
    return { received, stream };
  };
  const keepalive = (place: number, metadata?: StreamMetadata) => {
    const received: { at: number; ttl: number | string; term: bigint }[] = [];
    const stream = etcd.members[place]!.keepalive((answer) => {
      const { now: at } = scheduler;
      if (isRefusal(answer)) received.push({ at, ttl: answer.refused, term: 0n });
      else received.push({ at, ttl: answer.ttlSeconds, term: answer.header.raftTerm });
    }, metadata);
    return { received, stream };
  };
  scheduler.advance(10);
  const tools = { scheduler, etcd, cluster, lead, followers, send, ask, isolate, shatter, untilLed };
  return { ...tools, keysAt, watch, keepalive };
}

export const putOf = (key: string, leaseId = 0n): UnaryRequest => ({
  kind: "txns",
  txns: [txn({ success: [put(key, "", leaseId)] })],
});
export const rangeOf = (key: string, serializable = false): UnaryRequest => ({
  kind: "range",
  range: { key, ...(serializable && { serializable }) },
});
export const grantOf = (leaseId: bigint, ttlSeconds = 5): UnaryRequest => ({
  ...{ kind: "grant", leaseId, ttlSeconds },
});
