// The service KV: what protobuf says becomes a `KvRequest` of `testing/memory/`, and its answer becomes protobuf again.
import {
  type KvAnswer,
  type KvCompare,
  type KvRange,
  type KvRequest,
  type KvTxn,
  onlyReads,
} from "../memory/kv.js";
import { isRefusal, KEY_NOT_FOUND, type Refusal, REQUEST_TOO_LARGE } from "../memory/protocol.js";
import { bytesOfValue, type StoredKeyValue } from "../memory/store.js";
import { type Done, headerOf, headerOnly, made, type ServedMember, type WithHeader } from "./member.js";
import * as messages from "./messages.js";
import { type Metadata, type Method, unary } from "./server.js";

/** etcd rejects what its log cannot take: the default of `--max-request-bytes`. */
export const MAX_REQUEST_BYTES = 1.5 * 1024 * 1024;

export function kvOf(member: ServedMember): Record<string, Method> {
  /** `make` gets the header of the answer with its own revision. */
  const ask =
    <Kind extends KvAnswer["kind"], Made extends object>(make: Make<Kind, Made>) =>
    (request: KvRequest | Refusal, metadata: Metadata, done: Done<Made>): void => {
      if (isRefusal(request)) return done(request);
      if (!onlyReads(request) && sizeOf(request) > MAX_REQUEST_BYTES) return done(REQUEST_TOO_LARGE);
      member.ask<WithHeader & { kv: Of<Kind> }>(
        { kind: "kv", request },
        metadata,
        made(done, ({ header, kv }) => make(kv, { ...headerOf(header), revision: kv.revision })),
      );
    };
  const [range, put, deletion, txn] = [ask(rangeAnswer), ask(putAnswer), ask(deletionAnswer), ask(txnAnswer)];
  return {
    Range: unary(messages.RANGE_REQUEST, messages.RANGE_RESPONSE, (request, done, metadata) =>
      range(rangeOf(request), metadata, done),
    ),
    Put: unary(messages.PUT_REQUEST, messages.PUT_RESPONSE, (request, done, metadata) =>
      put({ kind: "put", ...request }, metadata, done),
    ),
    DeleteRange: unary(messages.DELETION_REQUEST, messages.DELETION_RESPONSE, (request, done, metadata) =>
      deletion({ kind: "delete", ...request }, metadata, done),
    ),
    Txn: unary(messages.TXN_REQUEST, messages.TXN_RESPONSE, (request, done, metadata) =>
      txn(txnOf(request), metadata, done),
    ),
    Compact: unary(messages.COMPACTION_REQUEST, messages.HEADER_ONLY, ({ revision }, done, metadata) =>
      member.ask({ kind: "compact", revision }, metadata, made(done, headerOnly)),
    ),
  };
}

type Of<Kind extends KvAnswer["kind"]> = Extract<KvAnswer, { kind: Kind }>;
type Make<Kind extends KvAnswer["kind"], Made> = (answer: Of<Kind>, header: messages.HeaderMessage) => Made;

/** About what it takes in the log. */
function sizeOf(request: KvRequest): number {
  if (request.kind === "put") return request.key.length + request.value.length;
  if (request.kind !== "txn") return request.key.length + (request.end?.length ?? 0);
  let size = 0;
  for (const compare of request.compare) size += compare.key.length + (compare.end?.length ?? 0);
  for (const each of request.success) size += sizeOf(each);
  for (const each of request.failure) size += sizeOf(each);
  return size;
}

const rangeOf = ({ limit, order, target, ...request }: messages.RangeRequest): KvRange => ({
  ...{ ...request, kind: "range", limit: Number(limit), order: { direction: order, target } },
});

function txnOf({ compare, success, failure }: messages.TxnRequest): KvTxn | Refusal {
  const [then, otherwise] = [success.map(operationOf), failure.map(operationOf)];
  const refusal = [...then, ...otherwise].find((each) => isRefusal(each));
  if (refusal) return refusal;
  return {
    kind: "txn",
    compare: compare.map(compareOf),
    success: then as KvRequest[],
    failure: otherwise as KvRequest[],
  };
}

function operationOf({ range, put, deletion, txn }: messages.OperationMessage): KvRequest | Refusal {
  if (range) return rangeOf(range);
  if (put) return { kind: "put", ...put };
  if (deletion) return { kind: "delete", ...deletion };
  return txn ? txnOf(txn) : KEY_NOT_FOUND;
}

function compareOf({ key, end, result, target, ...given }: messages.CompareMessage): KvCompare {
  const { version, createRevision, modRevision, value, leaseId } = given;
  const numbers = [version, createRevision, modRevision, value, leaseId];
  return { key, end, result, target, with: numbers[target] ?? 0n };
}

export const kvMessage = (kv: StoredKeyValue): messages.KeyValueMessage => ({
  ...kv,
  value: bytesOfValue(kv),
});

const rangeAnswer = (
  { kvs, more, count }: Of<"range">,
  header: messages.HeaderMessage,
): messages.RangeResponse => ({
  ...{ header, kvs: kvs.map(kvMessage), more, count },
});

const putAnswer = ({ previous }: Of<"put">, header: messages.HeaderMessage): messages.PutResponse => ({
  ...{ header, previous: previous && kvMessage(previous) },
});

const deletionAnswer = (
  { deleted, previous }: Of<"delete">,
  header: messages.HeaderMessage,
): messages.DeletionResponse => ({ header, deleted, previous: previous.map(kvMessage) });

const txnAnswer = (
  { succeeded, answers }: Of<"txn">,
  header: messages.HeaderMessage,
): messages.TxnResponse => ({
  ...{ header, succeeded, answers: answers.map(operationAnswer) },
});

/** Inside of a transaction, a header has the revision only. */
function operationAnswer(answer: KvAnswer): messages.AnswerMessage {
  const header = { revision: answer.revision };
  switch (answer.kind) {
    case "range":
      return { range: rangeAnswer(answer, header) };
    case "put":
      return { put: putAnswer(answer, header) };
    case "delete":
      return { deletion: deletionAnswer(answer, header) };
    case "txn":
      return { txn: txnAnswer(answer, header) };
  }
}
