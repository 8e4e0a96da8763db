import type { KeyValue, Operation, Range, RangeAnswer, WatchRequest } from "../../../src/etcd/port.js";
import type { SimEtcd } from "../../../src/testing/memory/etcd.js";
import type {
  SimServer,
  UnaryReply,
  UnaryRequest,
  WatchCommand,
} from "../../../src/testing/memory/protocol.js";
import type { Sabotage } from "./subjects/sim-subject.js";

/** A small deviation from etcd, which the comparison must find. */
export interface Lie {
  readonly name: string;
  readonly sabotage: Sabotage;
}

interface Lying {
  readonly request?: (request: UnaryRequest) => UnaryRequest;
  readonly reply?: (answer: object, request: UnaryRequest) => object;
  readonly create?: (request: WatchRequest) => WatchRequest;
}

/** A member that changes what it is asked, or what it answers. */
const lyingServer = (server: SimServer, { request, reply, create }: Lying): SimServer => ({
  host: server.host,
  call: (asked, out) => {
    const answered = (answer: UnaryReply): void =>
      out("answer" in answer && reply ? { answer: reply(answer.answer as object, asked) } : answer);
    server.call(request?.(asked) ?? asked, answered);
  },
  keepalive: (out) => server.keepalive(out),
  watch: (out) => {
    const stream = server.watch(out);
    const changed = (command: WatchCommand): WatchCommand =>
      create && "create" in command ? { create: create(command.create) } : command;
    return { send: (command) => stream.send(changed(command)), close: () => stream.close() };
  },
});

const server =
  (lying: Lying): Sabotage =>
  (etcd: SimEtcd) => {
    const members = etcd.members as SimServer[];
    members[0] = lyingServer(members[0]!, lying);
  };

/** Changes the ranges of requests, also those in transactions. */
const ranges = (change: (range: Range) => Range): Sabotage =>
  server({
    request: (request) => {
      if (request.kind === "range") return { ...request, range: change(request.range) };
      if (request.kind !== "txns") return request;
      const inside = (operation: Operation): Operation =>
        operation.kind === "range" ? { kind: "range", ...change(operation) } : operation;
      const txns = request.txns.map((txn) => ({
        ...txn,
        ...{ success: txn.success.map(inside), failure: txn.failure.map(inside) },
      }));
      return { kind: "txns", txns };
    },
  });

/** Changes the answers to ranges outside transactions. */
const found = (change: (answer: RangeAnswer) => RangeAnswer): Sabotage =>
  server({
    reply: (answer, { kind }) => (kind === "range" ? change(answer as RangeAnswer) : answer),
  });

const without = (range: Range, name: keyof Range): Range =>
  Object.fromEntries(Object.entries(range).filter(([option]) => option !== name)) as unknown as Range;

const withValue = (kv: KeyValue): KeyValue => ({ ...kv, value: kv.value === "" ? "x" : kv.value });

export const LIES: readonly Lie[] = [
  {
    name: "count is that of the keys in the answer",
    sabotage: found((answer) => ({ ...answer, count: answer.kvs.length })),
  },
  { name: "more is always false", sabotage: found((answer) => ({ ...answer, more: false })) },
  {
    name: "keysOnly has values",
    sabotage: found((answer) => ({ ...answer, kvs: answer.kvs.map(withValue) })),
  },
  {
    name: "a past revision is answered from the present",
    sabotage: ranges((range) => without(range, "revision")),
  },
  { name: "the order of keys ignores the sort", sabotage: ranges((range) => without(range, "order")) },
  {
    name: "maxCreateRevision excludes its revision",
    sabotage: ranges((range) =>
      range.maxCreateRevision === undefined || range.maxCreateRevision <= 1n
        ? range
        : { ...range, maxCreateRevision: range.maxCreateRevision - 1n },
    ),
  },
  {
    name: "a grant gives the TTL that was asked for",
    sabotage: server({
      reply: (answer, request) =>
        request.kind === "grant" ? { ...answer, ttlSeconds: Math.max(1, request.ttlSeconds) } : answer,
    }),
  },
  {
    name: "a compaction removes one revision less",
    sabotage: server({
      request: (request) =>
        request.kind === "compact" ? { ...request, revision: request.revision - 1n } : request,
    }),
  },
  {
    name: "a watch from the past starts one revision late",
    sabotage: server({
      create: (request) =>
        request.startRevision > 0n ? { ...request, startRevision: request.startRevision + 1n } : request,
    }),
  },
  {
    name: "a watch ignores its filter",
    sabotage: server({ create: (request) => ({ ...request, events: "ALL" }) }),
  },
  {
    name: "a put without a lease keeps that of the key",
    sabotage: ({ store }) => {
      const put = store.put.bind(store);
      store.put = (given) => {
        const before = store.keys.find(({ key }) => key.equals(Buffer.from(given.key)));
        put(given.leaseId === 0n && before ? { ...given, leaseId: before.leaseId } : given);
      };
    },
  },
  {
    name: "a revoke deletes each key at a revision of its own",
    sabotage: ({ store, leases }) => {
      const revoke = leases.revoke.bind(leases);
      leases.revoke = (leaseId) => {
        const lease = leases.all.find((each) => each.leaseId === leaseId);
        for (const key of [...(lease?.keys ?? [])].slice(1))
          store.write(() => store.delete(Buffer.from(key, "latin1")));
        return revoke(leaseId);
      };
    },
  },
];
