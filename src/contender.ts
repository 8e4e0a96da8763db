/** One key in a queue, as others see it. */
export interface Contender {
  readonly name: string;
  readonly key: string;
  readonly state: "holding" | "waiting";
  /** Create revision of the key: the fence of its holder. */
  readonly revision: bigint;
  readonly leaseId: bigint;
  /** `undefined` for places made by other clients (Go, etcdctl). */
  readonly owner: string | undefined;
  readonly since: Date | undefined;
  /** `undefined` when the lease was gone between the two reads. */
  readonly ttlRemainingMs: number | undefined;
  /** bigints as decimal strings, the date as ISO 8601. */
  toJSON(): Readonly<Record<string, unknown>>;
}
