import type {
  Header,
  KeyValue,
  LeaseAnswer,
  RangeAnswer,
  TxnAnswer,
  WatchAnswer,
  WatchEvent,
} from "../../../../src/etcd/port.js";
import { EtcdRefusedError } from "../../../../src/errors.js";
import { textOfKey } from "../programs/text.js";

/** Answers as text without what differs between two clusters: IDs of clusters and members, raft terms, and where revisions start. */
export class Normalizer {
  /** `start`: the revision at which the program started. */
  constructor(private readonly start: bigint) {}

  revision(revision: bigint): string {
    if (revision <= 0n) return String(revision);
    const plus = revision - this.start;
    return plus < 0n ? String(plus) : `+${plus}`;
  }

  header({ revision }: Header): string {
    return `rev=${this.revision(revision)}`;
  }

  kv({ key, value, createRevision, modRevision, leaseId }: KeyValue): string {
    const revisions = `${this.revision(createRevision)}/${this.revision(modRevision)}`;
    const lease = leaseId === 0n ? "" : ` lease=${leaseId}`;
    return `${textOfKey(key.toString().includes("\ufffd") ? key : key.toString())}=${JSON.stringify(value)} ${revisions}${lease}`;
  }

  range({ kvs, more, count }: Omit<RangeAnswer, "header">): string {
    return `count=${count}${more ? " more" : ""} [${kvs.map((kv) => this.kv(kv)).join(", ")}]`;
  }

  txns(answers: readonly TxnAnswer[]): string {
    return answers
      .map(({ header, succeeded, ranges }) => {
        const parts = ranges.map((range) => (range ? this.range(range) : "-"));
        return `${this.header(header)} ${succeeded ? "success" : "failure"} {${parts.join("; ")}}`;
      })
      .join(" AND ");
  }

  lease({ header, leaseId, ttlSeconds }: LeaseAnswer): string {
    return `${this.header(header)} lease=${leaseId} ttl=${ttlSeconds}`;
  }

  /** An answer of a watch without its events. */
  watch({ header, created, cancelled, cancelReason, compacted, watchId }: WatchAnswer): string {
    const flags = [created && "created", cancelled && "cancelled", compacted && "compacted"].filter(Boolean);
    const reason = cancelReason === "" ? "" : ` ${JSON.stringify(cancelReason)}`;
    return `${this.header(header)} id=${watchId} ${flags.join(" ")}${reason}`;
  }

  event({ kind, kv }: WatchEvent): string {
    return `${kind} ${this.kv(kv)}`;
  }
}

/** The kind of a failure, and etcd's own text. */
export function textOfError(error: unknown): string {
  if (!(error instanceof Error)) return `! ${String(error)}`;
  return `! ${error.name}: ${error instanceof EtcdRefusedError ? error.details : error.message}`;
}
