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
  /** `undefined` if the lease ended between the two reads. */
  readonly ttlRemainingMs: number | undefined;
  /** Bigints become decimal strings, the date ISO 8601. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** What a contender is made of: `owner` and `since` as the value of its key has them. */
interface ContenderParts extends Omit<Contender, "owner" | "since" | "toJSON"> {
  readonly owner?: string | undefined;
  readonly since?: string | undefined;
}

/** The limit that the option `owner` has. Another client may have written more. */
const MAX_OWNER_BYTES = 256;

export function contenderOf({ name, key, state, revision, leaseId, ...parts }: ContenderParts): Contender {
  const since = new Date(parts.since ?? NaN);
  const contender = {
    ...{ name, key, state, revision, leaseId },
    owner: parts.owner === undefined ? undefined : cut(parts.owner),
    since: Number.isNaN(since.getTime()) ? undefined : since,
    ttlRemainingMs: parts.ttlRemainingMs,
  };
  const toJSON = (): Record<string, unknown> => ({
    ...contender,
    revision: revision.toString(),
    leaseId: leaseId.toString(),
  });
  // Not enumerable, so that logs and comparisons show only the data.
  return Object.defineProperty(contender, "toJSON", { value: toJSON }) as Contender;
}

/** Cuts between two characters, never within one. */
function cut(owner: string): string {
  const { read } = new TextEncoder().encodeInto(owner, new Uint8Array(MAX_OWNER_BYTES));
  // A part of a longer string would keep all of it in memory.
  return read === owner.length ? owner : Buffer.from(owner.slice(0, read), "utf16le").toString("utf16le");
}
