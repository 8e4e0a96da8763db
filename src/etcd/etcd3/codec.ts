import type {
  ICompare,
  IKeyValue,
  IRangeRequest,
  IRangeResponse,
  IRequestOp,
  IResponseHeader,
  ITxnRequest,
  ITxnResponse,
  IWatchCreateRequest,
  IWatchResponse,
} from "etcd3";
import type {
  Compare,
  Header,
  KeyValue,
  LeaseAnswer,
  Operation,
  Range,
  RangeAnswer,
  Txn,
  TxnAnswer,
  WatchAnswer,
  WatchRequest,
} from "../port.js";

/** Converts between the port's types and etcd3's. etcd3 takes IDs and revisions as decimal strings: numbers over 2^53 round. */

const bytes = (key: string | Buffer): Buffer => (typeof key === "string" ? Buffer.from(key) : key);

const headerOf = (header: IResponseHeader): Header => ({
  clusterId: header.cluster_id,
  revision: BigInt(header.revision),
  memberId: header.member_id,
  raftTerm: BigInt(header.raft_term),
});

const keyValueOf = (kv: IKeyValue): KeyValue => ({
  key: kv.key,
  value: kv.value.toString(),
  createRevision: BigInt(kv.create_revision),
  modRevision: BigInt(kv.mod_revision),
  leaseId: BigInt(kv.lease),
});

export function rangeRequest(range: Range): IRangeRequest {
  return {
    key: bytes(range.key),
    ...(range.end !== undefined && { range_end: bytes(range.end) }),
    ...(range.limit !== undefined && { limit: range.limit }),
    ...(range.revision !== undefined && { revision: range.revision.toString() }),
    ...(range.order && {
      sort_target: "Create",
      sort_order: range.order === "oldest first" ? "Ascend" : "Descend",
    }),
    ...(range.maxCreateRevision !== undefined && { max_create_revision: range.maxCreateRevision.toString() }),
    ...(range.serializable && { serializable: true }),
    ...(range.keysOnly && { keys_only: true }),
  };
}

const rangeOf = (answer: IRangeResponse): Omit<RangeAnswer, "header"> => ({
  kvs: answer.kvs.map(keyValueOf),
  more: answer.more,
  count: Number(answer.count),
});

export const rangeAnswer = (answer: IRangeResponse): RangeAnswer => ({
  header: headerOf(answer.header),
  ...rangeOf(answer),
});

function compareOf(compare: Compare): ICompare {
  const key = bytes(compare.key);
  switch (compare.kind) {
    case "created at":
      return { target: "Create", result: "Equal", key, create_revision: compare.revision.toString() };
    case "modified at":
      return { target: "Mod", result: "Equal", key, mod_revision: compare.revision.toString() };
    case "nothing in":
      return { target: "Create", result: "Equal", key, range_end: bytes(compare.end), create_revision: "0" };
    case "nothing since": {
      const before = (compare.revision + 1n).toString();
      return {
        target: "Create",
        result: "Less",
        key,
        range_end: bytes(compare.end),
        create_revision: before,
      };
    }
    case "value is":
      return { target: "Value", result: "Equal", key, value: Buffer.from(compare.value) };
  }
}

function operationOf(operation: Operation): IRequestOp {
  switch (operation.kind) {
    case "put":
      return {
        request_put: {
          key: Buffer.from(operation.key),
          value: Buffer.from(operation.value),
          lease: operation.leaseId.toString(),
        },
      };
    case "delete":
      return { request_delete_range: { key: bytes(operation.key) } };
    case "range":
      return { request_range: rangeRequest(operation) };
  }
}

const txnRequest = (txn: Txn): ITxnRequest => ({
  compare: txn.compare.map(compareOf),
  success: txn.success.map(operationOf),
  failure: txn.failure.map(operationOf),
});

/** A single transaction is sent as it is, several inside one that compares nothing. */
export function txnsRequest(txns: readonly Txn[]): ITxnRequest {
  const requests = txns.map(txnRequest);
  const [only] = requests;
  if (only && requests.length === 1) return only;
  return { success: requests.map((request_txn) => ({ request_txn })) };
}

const txnAnswer = (header: Header, answer: ITxnResponse): TxnAnswer => ({
  header,
  succeeded: answer.succeeded,
  ranges: answer.responses.map(({ response_range }) => response_range && rangeOf(response_range)),
});

/** The answers to `count` transactions. Those inside another have no header of their own: they get the outer one. */
export function txnsAnswer(answer: ITxnResponse, count: number): TxnAnswer[] {
  const header = headerOf(answer.header);
  if (count === 1) return [txnAnswer(header, answer)];
  if (answer.responses.length !== count) throw new Error("not as many answers as transactions");
  return answer.responses.map(({ response_txn }) => txnAnswer(header, response_txn));
}

export const leaseAnswer = (answer: {
  readonly header: IResponseHeader;
  readonly ID: string;
  readonly TTL: string;
}): LeaseAnswer => ({
  header: headerOf(answer.header),
  leaseId: BigInt(answer.ID),
  ttlSeconds: Number(answer.TTL),
});

export const watchRequest = (request: WatchRequest): IWatchCreateRequest => ({
  key: bytes(request.key),
  ...(request.end !== undefined && { range_end: bytes(request.end) }),
  start_revision: request.startRevision.toString(),
  watch_id: request.watchId.toString(),
  filters: request.events === "ALL" ? [] : [request.events === "DELETE" ? "Noput" : "Nodelete"],
});

export const watchAnswer = (answer: IWatchResponse): WatchAnswer => ({
  header: headerOf(answer.header),
  watchId: Number(answer.watch_id),
  created: answer.created,
  cancelled: answer.canceled,
  cancelReason: answer.cancel_reason,
  compacted: answer.compact_revision !== "0",
  events: answer.events.map(({ type, kv }) => ({
    kind: type === "Delete" ? "DELETE" : "PUT",
    kv: keyValueOf(kv),
  })),
});
