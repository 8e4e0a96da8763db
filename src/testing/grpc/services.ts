// The services of etcd that its clients use, on one member of an etcd in this process.
import type { LeaseAnswer, WatchAnswer } from "../../etcd/port.js";
import { isRefusal, type Refusal, type WatchCommand } from "../memory/protocol.js";
import type { StoredKeyValue } from "../memory/store.js";
import { authOf, clusterOf, maintenanceOf } from "./admin.js";
import { electionOf, lockOf } from "./concurrency.js";
import { kvMessage, kvOf, MAX_REQUEST_BYTES } from "./kv.js";
import { headerOf, headerOnly, made, type ServedMember } from "./member.js";
import * as messages from "./messages.js";
import { type Duplex, type Method, streaming, unary } from "./server.js";

/** The methods of one member by their paths. */
export function servicesOf(member: ServedMember): Readonly<Record<string, Method>> {
  const services = {
    KV: kvOf(member),
    Lease: leaseOf(member),
    Watch: { Watch: watchOf(member) },
    Auth: authOf(member),
    Cluster: clusterOf(member),
    Maintenance: maintenanceOf(member),
  };
  const others = {
    ...{ "v3lockpb.Lock": lockOf(member), "v3electionpb.Election": electionOf(member) },
    "grpc.health.v1.Health": HEALTH,
  };
  const own = Object.entries(services).map(([service, each]) => [`etcdserverpb.${service}`, each] as const);
  const methods = [...own, ...Object.entries(others)].flatMap(([service, each]) =>
    Object.entries(each).map(([name, one]) => [`/${service}/${name}`, one] as const),
  );
  return Object.fromEntries(methods);
}

/** Lease. */

function leaseOf(member: ServedMember): Record<string, Method> {
  const { etcd, index } = member;
  const leaseAnswer = ({ header, leaseId, ttlSeconds }: LeaseAnswer): messages.LeaseResponse => ({
    ...{ header: headerOf(header), leaseId, ttlSeconds },
  });
  return {
    LeaseGrant: unary(
      messages.GRANT_REQUEST,
      messages.LEASE_RESPONSE,
      ({ leaseId, ttlSeconds }, done, metadata) => {
        const request = { kind: "grant", leaseId, ttlSeconds: Number(ttlSeconds) } as const;
        member.ask(request, metadata, made(done, leaseAnswer));
      },
    ),
    LeaseRevoke: unary(messages.LEASE_REQUEST, messages.HEADER_ONLY, ({ leaseId }, done, metadata) =>
      member.ask({ kind: "revoke", leaseId }, metadata, made(done, headerOnly)),
    ),
    LeaseTimeToLive: unary(
      messages.TIME_TO_LIVE_REQUEST,
      messages.LEASE_RESPONSE,
      ({ leaseId, keys }, done, metadata) => {
        const request = { kind: "timeToLive", leaseId, withoutKeys: !keys } as const;
        const make = (
          answer: LeaseAnswer & { readonly keys: readonly Buffer[] },
        ): messages.LeaseResponse => ({
          ...{ ...leaseAnswer(answer), keys: answer.keys },
          grantedSeconds: etcd.leases.ttlOf(leaseId) ?? 0,
        });
        member.ask(request, metadata, made(done, make));
      },
    ),
    LeaseLeases: unary(messages.EMPTY, messages.LEASES_RESPONSE, (_, done, metadata) =>
      member.administer(
        { needs: "user", run: () => ({ leases: etcd.leases.all.map(({ leaseId }) => ({ leaseId })) }) },
        metadata,
        done,
      ),
    ),
    LeaseKeepAlive: streaming(messages.LEASE_REQUEST, messages.LEASE_RESPONSE, (out, metadata) => {
      const stream = etcd.members[index]!.keepalive(
        (answer) => (isRefusal(answer) ? out.end(answer) : out.answer(leaseAnswer(answer))),
        metadata,
      );
      // When the client sends no more, etcd ends the call.
      return { ...duplex(stream, ({ leaseId }: { leaseId: bigint }) => leaseId), close: () => out.end() };
    }),
  };
}

/** What a client sends to a stream of a member. */
function duplex<Request, Command>(
  stream: { send(command: Command): void; close(): void },
  commandOf: (request: Request) => Command | undefined,
): Duplex<Request> {
  const message = (request: Request): void => {
    const command = commandOf(request);
    if (command !== undefined) stream.send(command);
  };
  return { message, close: () => {}, gone: () => stream.close() };
}

/** Health (grpc.health.v1): this port serves as long as it listens. */

const SERVING = 1;
const SERVICE_UNKNOWN = 3;
const HEALTH: Record<string, Method> = {
  Check: unary(messages.HEALTH_REQUEST, messages.HEALTH_RESPONSE, ({ service }, done) =>
    done(service === "" ? { status: SERVING } : { refused: "unknown service", code: NOT_FOUND }),
  ),
  Watch: streaming(messages.HEALTH_REQUEST, messages.HEALTH_RESPONSE, (out) => ({
    message: ({ service }) => out.answer({ status: service === "" ? SERVING : SERVICE_UNKNOWN }),
    close: () => {},
  })),
};
const NOT_FOUND = 5;

/** Watch. */

type WatchDetails = Pick<messages.WatchCreation, "previous" | "fragment" | "filters">;

const watchOf = (member: ServedMember): Method =>
  streaming(messages.WATCH_REQUEST, messages.WATCH_RESPONSE, (out, metadata) => {
    /** The creations that are not answered yet, in order, and by the ID of the watch. */
    const asked: WatchDetails[] = [];
    const details = new Map<number, WatchDetails>();
    const take = (answer: WatchAnswer | Refusal): void => {
      if (isRefusal(answer)) return out.end(answer);
      if (answer.created) details.set(answer.watchId, asked.shift()!);
      const found = details.get(answer.watchId);
      if (answer.cancelled) details.delete(answer.watchId);
      for (const response of watchAnswers(member, answer, found)) out.answer(response);
    };
    const stream = member.etcd.members[member.index]!.watch(take, metadata);
    // The stream goes on when the client sends no more.
    return duplex(stream, ({ create, cancel, progress }: messages.WatchMessage): WatchCommand | undefined => {
      if (cancel) return { cancel: Number(cancel.watchId) };
      if (create === undefined) return progress && { probe: true };
      asked.push(create);
      const { key, end, startRevision, filters } = create;
      const events = filters.length === 0 ? "ALL" : filters.includes(NO_PUT) ? "DELETE" : "PUT";
      return {
        create: { key, ...(end && { end }), startRevision, watchId: Number(create.watchId), events },
      };
    });
  });

const [NO_PUT, NO_DELETE] = [0, 1];
/** A client that asks for it gets larger answers in parts. */
const MAX_ANSWER_BYTES = MAX_REQUEST_BYTES + 512 * 1024;

function* watchAnswers(
  member: ServedMember,
  answer: WatchAnswer,
  { previous = false, fragment = false, filters = [] }: Partial<WatchDetails> = {},
): Generator<messages.WatchResponse> {
  const { header, watchId, created, cancelled, cancelReason, compacted } = answer;
  const isOff = filters.includes(NO_PUT) && filters.includes(NO_DELETE);
  if (isOff && answer.events.length > 0) return;
  const { store } = member.etcd;
  const response = {
    ...{ header: headerOf(header), watchId, created, cancelled, cancelReason },
    compactRevision: compacted ? store.compacted : 0n,
  };
  const events = answer.events.map(({ kind, kv }) => {
    // A key that is created has none, though a deletion in the same transaction may have come before.
    const isNew = kv.createRevision === kv.modRevision;
    const before = previous && !isNew ? store.at(kv.key, kv.modRevision - 1n) : undefined;
    return {
      ...{ type: kind === "PUT" ? 0 : 1, kv: kvMessage(kv as StoredKeyValue) },
      previous: before && kvMessage(before),
    };
  });
  const sizes = events.map(({ kv, previous: before }) => bytesOf(kv) + (before ? bytesOf(before) : 0));
  for (let start = 0; ;) {
    let [end, size] = [start, 0];
    while (end < events.length && (!fragment || end === start || size + sizes[end]! < MAX_ANSWER_BYTES))
      size += sizes[end++]!;
    yield { ...response, events: events.slice(start, end), fragment: end < events.length };
    start = end;
    if (start >= events.length) return;
  }
}

/** With room for its numbers. */
const bytesOf = ({ key, value }: messages.KeyValueMessage): number => key.length + value.length + 64;
