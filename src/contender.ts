import { printable } from "./base/util/printable.js";

/** One key in a queue, as other clients see it. `owner`, `since`, `reason` and `value` are what its client has written, unescaped. */
export interface Contender {
  readonly name: string;
  readonly key: string;
  /**
   * `"dead"`: its lease has ended without a release, since its process has died or has lost its session, and `releaseDelayMs` of that session
   * still keeps its place. It neither holds nor waits; nobody behind it holds before its key is gone.
   */
  readonly state: "holding" | "waiting" | "dead";
  /** Create revision of the key: the fence, if it holds an exclusive lock. */
  readonly revision: bigint;
  /**
   * The lease of the key. That of a dead entry is its second lease, which ends with the delay. 0n is none: the key stays until it is
   * deleted.
   */
  readonly leaseId: bigint;
  /** `undefined` for entries made by other clients (Go, etcdctl). */
  readonly owner: string | undefined;
  readonly since: Date | undefined;
  /** Why it wants the lock, or holds it, if its caller has said so with the option `reason`; cut at 256 bytes. */
  readonly reason: string | undefined;
  /**
   * Whether its session may keep the key while no caller has the lock (`sticky: true`): a `"holding"` one is held or kept. Only its own
   * process knows which: it takes the lock again without a request to etcd.
   */
  readonly sticky: boolean;
  /** How many permits of a weighted Semaphore it takes, and how many there are by its own word; undefined for any other entry. */
  readonly weighted: { readonly weight: number; readonly permits: number } | undefined;
  /** The `priority` of its call of a Mutex with `priorities`; undefined for any other entry. */
  readonly priority: number | undefined;
  /** What a leader or a candidate has campaigned with or proclaimed, cut at 256 bytes. Any other entry has none. */
  readonly value: string | undefined;
  /**
   * Milliseconds, a multiple of 1000, until its lease ends if no renewal comes before; that of a dead entry is when its place is free. Only
   * from `inspect`, and of a dead first holder from `list`. `undefined` if the lease ended between the two reads.
   */
  readonly ttlRemainingMs: number | undefined;
  /** Bigints become decimal strings, the date ISO 8601. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** When a place that a dead contender keeps is free. `ms`: what is left of its lease, in milliseconds; undefined: nobody has asked. */
export const freeText = (ms: number | undefined): string =>
  ms === undefined ? "soon free" : `free in ${Math.max(0, Math.ceil(ms / 1000))} s`;

/** What is known of these, each of which may have the lock. */
export const holdingText = (holders: readonly Pick<Contender, "sticky">[]): string =>
  holders.some(({ sticky }) => sticky) ? "held or kept" : "holding";

/** What the holders of a weighted semaphore take, such as "9 of 10 permits". Undefined for other locks, and if not all holders are known. */
export function permitsText(
  holders: readonly Pick<Contender, "weighted">[],
  total: number,
): string | undefined {
  const permits = holders[0]?.weighted?.permits;
  if (permits === undefined || holders.length < total) return undefined;
  const taken = holders.reduce((sum, { weighted }) => sum + (weighted?.weight ?? 0), 0);
  return `${taken} of ${permits} permits`;
}

/** The state, as far as it is known. */
export const stateText = (contender: Pick<Contender, "state" | "sticky">): string =>
  contender.state === "holding" ? holdingText([contender]) : contender.state;

/** Who is in the way of the others, for a sentence. `who`: its name in that sentence. */
export const heldText = (
  { state, sticky, owner, key, ttlRemainingMs }: Omit<Contender, "toJSON">,
  who = printable(owner ?? key),
): string =>
  state === "dead"
    ? `its holder ${who} is dead (${freeText(ttlRemainingMs)})`
    : `held ${sticky ? "or kept " : ""}by ${who}`;
