import { channel, type Channel, tracingChannel, type TracingChannel } from "node:diagnostics_channel";
import type {
  AcquireMessage,
  CallMessage,
  ElectionMessage,
  GuardianMessage,
  HoldEndMessage,
  HoldLongMessage,
  CredentialsMessage,
  MemberMessage,
  RejoinMessage,
  RenewedMessage,
  SessionMessage,
  ShardMessage,
} from "./messages.js";

/**
 * The names of the channels, as a subscriber passes them to `node:diagnostics_channel`. They and the fields of messages change only in a
 * major version; more may be added. What a subscriber throws is an `uncaughtException`, as on every channel, and does not disturb the lock.
 *
 * Acquisitions, rejoins, releases, and the beginning of a candidacy and of a term are published in the async context of their call, as is
 * `leasehold.call` for a request that the call sends itself. All else is published in the context in which leasehold was imported.
 */
export const CHANNELS = {
  acquire: "leasehold.acquire",
  call: "leasehold.call",
  holdEnd: "leasehold.hold.end",
  holdLong: "leasehold.hold.long",
  rejoin: "leasehold.rejoin",
  session: "leasehold.session",
  renewed: "leasehold.session.renewed",
  member: "leasehold.member",
  credentials: "leasehold.credentials",
  guardian: "leasehold.guardian",
  election: "leasehold.election",
  shard: "leasehold.shard",
} as const;

/** A channel that knows the type of its messages. Check `hasSubscribers` before a message is created. */
export interface TypedChannel<M> extends Omit<Channel<unknown, M>, "publish" | "subscribe" | "unsubscribe"> {
  publish(message: M): void;
  subscribe(listener: (message: M, name: string | symbol) => void): void;
  unsubscribe(listener: (message: M, name: string | symbol) => void): void;
}

type TracingEvent = "start" | "end" | "asyncStart" | "asyncEnd" | "error";

/**
 * A tracing channel whose five channels know the type of their messages. It publishes `start` and `asyncEnd`, and `error` before that if
 * the call rejects; `result` is never set.
 */
export type TypedTracingChannel<M extends object> = Omit<TracingChannel<unknown, M>, TracingEvent> &
  Readonly<Record<TracingEvent, TypedChannel<M>>>;

const typed = <M>(name: string): TypedChannel<M> => channel(name) as TypedChannel<M>;
const traced = <M extends object>(name: string): TypedTracingChannel<M> =>
  tracingChannel(name) as TypedTracingChannel<M>;

export const acquireChannel = traced<AcquireMessage>(CHANNELS.acquire);
export const callChannel = traced<CallMessage>(CHANNELS.call);
export const holdEndChannel = typed<HoldEndMessage>(CHANNELS.holdEnd);
export const holdLongChannel = typed<HoldLongMessage>(CHANNELS.holdLong);
export const rejoinChannel = typed<RejoinMessage>(CHANNELS.rejoin);
export const sessionChannel = typed<SessionMessage>(CHANNELS.session);
export const renewedChannel = typed<RenewedMessage>(CHANNELS.renewed);
export const memberChannel = typed<MemberMessage>(CHANNELS.member);
export const credentialsChannel = typed<CredentialsMessage>(CHANNELS.credentials);
export const guardianChannel = typed<GuardianMessage>(CHANNELS.guardian);
export const electionChannel = typed<ElectionMessage>(CHANNELS.election);
export const shardChannel = typed<ShardMessage>(CHANNELS.shard);
