/** One key in a queue, as other clients see it. */
export interface Contender {
  readonly name: string;
  readonly key: string;
  readonly state: "holding" | "waiting";
  /** Create revision of the key: the fence, if it holds an exclusive lock. */
  readonly revision: bigint;
  readonly leaseId: bigint;
  /** `undefined` for entries made by other clients (Go, etcdctl). */
  readonly owner: string | undefined;
  readonly since: Date | undefined;
  /** Of a leader or a candidate: what it has campaigned with or proclaimed, cut at 256 bytes. Any other entry has none. */
  readonly value: string | undefined;
  /** `undefined` if the lease ended between the two reads. */
  readonly ttlRemainingMs: number | undefined;
  /** Bigints become decimal strings, the date ISO 8601. */
  toJSON(): Readonly<Record<string, unknown>>;
}
