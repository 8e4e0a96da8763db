import { type Contender, heldText } from "./contender.js";
import { MARKS } from "./keys.js";
import type { FoundKind, LockKind } from "./kinds.js";
import { rangeError } from "./base/options/check.js";
import { printable } from "./base/util/printable.js";
import { isError } from "./base/util/realm.js";

/** The time since the last renewal that etcd accepted, as far as the session knew it. */
export interface RenewalReport {
  /** Milliseconds until the deadline; 0 after it. */
  readonly remainingMs: number;
  /** Milliseconds since the last accepted renewal was sent. */
  readonly sinceLastRenewalMs: number;
  /**
   * Milliseconds of that time, at least, in which this process did not run its timers: suspended, paused, or a blocked
   * event loop. A stall is measured by the lateness of the session's own timers, so up to half of the TTL may be missing. 0 if none was more
   * than 50 ms late.
   */
  readonly stalledMs: number;
  /** The last failure of each member in that time, by host; an EtcdRefusedError if etcd refuses to renew the lease. */
  readonly members: ReadonlyMap<string, Error>;
}

const NO_REPORT: RenewalReport = {
  remainingMs: 0,
  sinceLastRenewalMs: 0,
  stalledMs: 0,
  members: new Map<string, Error>(),
};

/** Each class has one code. Match on `code` (or with `instanceof`), never on the message. */
export type LeaseholdErrorCode =
  | "SESSION_LOST"
  | "SESSION_CLOSED"
  | "LOCK_LOST"
  | "LOCK_RELEASED"
  | "LOCK_TIMEOUT"
  | "QUEUE_FULL"
  | "SUPERSEDED"
  | "LOCK_EXPIRING"
  | "STALE_FENCE"
  | "DEADLOCK"
  | "KIND_MISMATCH"
  | "SHARD_MOVED"
  | "SHARD_COUNT"
  | "TRANSFER_REFUSED"
  | "ONCE_RUNNING"
  | "FINGERPRINT_MISMATCH"
  | "RESULT_NOT_KEPT"
  | "RUN_FAILED"
  | "LATCH_BROKEN"
  | "BARRIER_BROKEN"
  | "BARRIER_FULL"
  | "COUNT_MISMATCH"
  | "WAIT_TIMEOUT"
  | "ETCD_UNAVAILABLE"
  | "ETCD_REFUSED"
  | "PACKAGE_MISSING";

/** Every copy of leasehold in a process finds the same symbol. JSON and structured clones have no symbols. */
const BRAND = Symbol.for("leasehold.error");

/** An error that any copy of leasehold created. */
const isBranded = (value: unknown): value is LeaseholdError =>
  typeof value === "object" && value !== null && BRAND in value;

const hasJson = (value: unknown): value is { toJSON(): unknown } =>
  typeof value === "object" && value !== null && "toJSON" in value && typeof value.toJSON === "function";

/** The value of a field in JSON: bigints become decimal strings, maps become objects, and times are whole milliseconds. */
export function jsonOf(value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number" && Number.isFinite(value)) return Math.floor(value);
  if (value instanceof Map) return Object.fromEntries([...value].map(([k, v]) => [String(k), jsonOf(v)]));
  if (isError(value) && !isBranded(value)) return { name: value.name, message: value.message };
  return hasJson(value) ? value.toJSON() : value;
}

/** The base class of every error that leasehold creates, except for misuse, which is a `TypeError` or `RangeError`. */
export abstract class LeaseholdError extends Error {
  abstract readonly code: LeaseholdErrorCode;

  static {
    Object.defineProperty(this.prototype, BRAND, { value: true });
  }

  /** The message is one line, whatever names it contains. Texts from other clients and from servers are limited in length. */
  constructor(message: string, options?: ErrorOptions) {
    super(printable(message, Infinity), options);
  }

  /** Each class of leasehold returns a literal, because minifiers shorten the names of classes. */
  override get name(): string {
    return this.constructor.name;
  }

  /** Name, code, message, the fields of the class, and the cause if there is one. Bigints become decimal strings. */
  toJSON(): Readonly<Record<string, unknown>> {
    const fields = Object.entries(this).map(([key, value]) => [key, jsonOf(value)] as const);
    // The errors of an AggregateError are among the fields.
    const none = this.cause === undefined || this.cause instanceof AggregateError;
    const cause = none ? {} : { cause: jsonOf(this.cause) };
    return { name: this.name, message: this.message, ...Object.fromEntries(fields), ...cause };
  }
}

/** Texts from etcd and gRPC are cut where they arrive. This limit leaves room for hints and the reasons of several hosts. */
const MAX_REASON = 2000;

/** The last failure of each member, in one line. */
export const failuresText = (members: ReadonlyMap<string, Error>): string =>
  [...members].map(([host, { message }]) => `${host}: ${printable(message, MAX_REASON)}`).join("; ");

/** What these failures say: a server that has refused was not silent. The failures by which servers refuse have a `reason`. */
export function silenceOf(members: ReadonlyMap<string, Error>): string {
  const refusals = [...members.values()].filter((error) => "reason" in error).length;
  if (refusals === 0) return "etcd did not answer";
  return refusals === members.size ? "etcd refused" : "etcd did not answer, or refused";
}

/** The same, with the last failure of each member. */
export const silenceText = (members: ReadonlyMap<string, Error>): string =>
  `${silenceOf(members)}${members.size > 0 ? `: ${failuresText(members)}` : ""}`;

/** On every host, nothing listens at the port. */
const noneListens = (members: ReadonlyMap<string, Error>): boolean =>
  members.size > 0 && [...members.values()].every(({ message }) => message.includes("ECONNREFUSED"));

/** The failures of members as the `cause` of an error. */
export function causeOf(members: ReadonlyMap<string, Error>): AggregateError {
  const isShort = noneListens(members);
  const cause = new AggregateError(
    [...members.values()].map((error) => (isShort ? withoutStack(new Error(error.message)) : error)),
    "every member that was tried failed",
  );
  return isShort ? withoutStack(cause) : cause;
}

/** Where no etcd runs, most often at the first try, forty lines of our stacks would hide the reason. */
const withoutStack = <E extends Error>(error: E): E =>
  Object.assign(error, { stack: `${error.name}: ${error.message}` });

/** No member answered in time. Whether etcd executed the request is unknown; what it may have left is removed in the background. */
export class EtcdUnavailableError extends LeaseholdError {
  readonly code = "ETCD_UNAVAILABLE";
  declare readonly cause: AggregateError;
  readonly #what: string;
  readonly #members: ReadonlyMap<string, Error>;
  readonly #within: string | undefined;

  constructor(what: string, members: ReadonlyMap<string, Error>);
  /** @internal `within`: no host was ever reached in this time, after which the call has given up without being told to. */
  constructor(what: string, members: ReadonlyMap<string, Error>, within: string | undefined);
  constructor(what: string, members: ReadonlyMap<string, Error>, within?: string) {
    const silence = within === undefined ? silenceOf(members) : `no etcd reached within ${within}`;
    const reasons = members.size > 0 ? `: ${failuresText(members)}` : "";
    const question = noneListens(members) ? ". Is etcd running?" : "";
    const advice =
      within === undefined
        ? ""
        : `${question === "" ? "." : ""} To wait longer, first await cluster.session({ timeoutMs })`;
    super(`${silence} (${what})${reasons}${question}${advice}`, { cause: causeOf(members) });
    this.#what = what;
    this.#members = members;
    this.#within = within;
  }

  /** The last failure of each member that was tried, by host. Those of `cause`: an error that is printed has them once. */
  get members(): ReadonlyMap<string, Error> {
    return this.#members;
  }

  override toJSON(): Readonly<Record<string, unknown>> {
    return { ...super.toJSON(), members: jsonOf(this.#members) };
  }

  override get name() {
    return "EtcdUnavailableError" as const;
  }

  /** @internal The same error for another caller, with a stack of its own. */
  again(): EtcdUnavailableError {
    return new EtcdUnavailableError(this.#what, this.members, this.#within);
  }
}

/** Why etcd rejected a request. `member`: every host did, each for its own reason (a web server, a learner, another cluster). */
export type RefusalReason = "unauthenticated" | "permission" | "quota" | "tls" | "member" | "other";

/**
 * etcd rejected the request and would reject it again (wrong password, no permission, quota), or every host rejected it
 * for its own reason (`tls` or `member`). The request is not retried. docs/troubleshooting.md lists etcd's texts.
 *
 * It ends `lock()`, a call that waits, `Session.open` and `observe()`, and what they have put is deleted. A release and cleanups try again,
 * with pauses of up to 1 s, while the lease lives; `lead` campaigns again after `quota`, `tls` and `member`. A full database rejects no
 * reads, so calls that wait go on.
 *
 * Only etcd's own text rejects a request. After a web server's 401 or 404, a gateway's text, an untrusted certificate or an answer of
 * another etcd cluster, the next host is asked. When every host has answered so, after three attempts at least, the call rejects; `reason`
 * is `tls`, `permission` or `unauthenticated` if all hosts agree, else `member`. Resets, closed connections, HTTP 429 and 5xx, and what
 * can't be decoded count as no answer. A host that asks for a client certificate, then closes without a word, counts as `tls` until a host
 * has answered, and then as unreachable; with the transport "etcd3", always as unreachable. Texts of etcd that docs/troubleshooting.md
 * doesn't list, with the code of a rejection, and `grpc: received message larger than max` are `other`: etcd has perhaps executed the request.
 */
export class EtcdRefusedError extends LeaseholdError {
  readonly code = "ETCD_REFUSED";
  readonly #details: string;
  readonly #inDoubt: boolean;

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly reason: RefusalReason,
    readonly host: string,
    details: string,
    { what, inDoubt = false }: { readonly what?: string; readonly inDoubt?: boolean } = {},
  ) {
    super(
      `etcd at ${host} refused${what === undefined ? "" : ` to ${what}`} (${reason}): ${printable(details, MAX_REASON)}`,
    );
    this.#details = details;
    this.#inDoubt = inDoubt;
  }

  override get name() {
    return "EtcdRefusedError" as const;
  }

  /** @internal The text of the answer, from etcd or from whatever server answered in its place. */
  get details(): string {
    return this.#details;
  }

  /** @internal The request may have been executed nevertheless: see "database space exceeded" in etcd/refusals.ts. */
  get inDoubt(): boolean {
    return this.#inDoubt;
  }

  /** @internal The same error, naming the operation that was refused. */
  during(what: string): EtcdRefusedError {
    return new EtcdRefusedError(this.reason, this.host, this.#details, { what, inDoubt: this.#inDoubt });
  }
}

/** A deadline passed, a lease was revoked, the key was deleted, the session was closed, `maxHoldMs` passed, or a leader's work stood still. */
export type Loss = "expired" | "revoked" | "deleted" | "closed" | "max_hold" | "unhealthy";

/** The limit of the message of a user's error, in characters. */
const MAX_WHY = 500;

const hex = (leaseId: bigint): string => leaseId.toString(16);
const lossText: Record<Loss, string> = {
  expired: "its session was not renewed in time",
  revoked: "its lease is gone",
  deleted: "its key was deleted",
  closed: "its session was closed while it was held",
  max_hold: "it was held longer than its maxHoldMs",
  unhealthy: "its work is not healthy",
};

/**
 * The lease is gone, or may be: its deadline passed (`expired`), or etcd reported that it does not exist (`revoked`). The
 * message of an `expired` one says whether this process did not run, etcd did not answer, or both, or that etcd refused the
 * renewals. `cause` is an AggregateError of `members` if etcd did not answer, and the EtcdRefusedError if it refused, which is in
 * `members`, too.
 */
export class SessionLostError extends LeaseholdError {
  readonly code = "SESSION_LOST";
  /** See RenewalReport. */
  readonly remainingMs: number;
  readonly sinceLastRenewalMs: number;
  readonly stalledMs: number;
  readonly members: ReadonlyMap<string, Error>;

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly leaseId: bigint,
    readonly loss: "expired" | "revoked",
    reason: string,
    report: RenewalReport & {
      readonly unanswered?: boolean;
      readonly refusal?: EtcdRefusedError | undefined;
    } = NO_REPORT,
  ) {
    const silence = report.unanswered === true && report.members.size > 0;
    const cause = report.refusal ?? (silence ? causeOf(report.members) : undefined);
    super(`Session ${hex(leaseId)} lost: ${reason}`, cause && { cause });
    this.remainingMs = report.remainingMs;
    this.sinceLastRenewalMs = report.sinceLastRenewalMs;
    this.stalledMs = report.stalledMs;
    this.members = report.members;
  }

  override get name() {
    return "SessionLostError" as const;
  }
}

/** This process closed the session or its cluster. */
export class SessionClosedError extends LeaseholdError {
  readonly code = "SESSION_CLOSED";

  /** @param why default: it was closed or orphaned. Otherwise it is live, and takes no new calls */
  constructor(
    readonly leaseId: bigint,
    why?: string,
  ) {
    const how = why === undefined ? "is closed" : `takes no new calls: ${why}`;
    super(leaseId === 0n ? "The cluster is closed" : `Session ${hex(leaseId)} ${how}`);
  }

  override get name() {
    return "SessionClosedError" as const;
  }
}

/** The caller held the lock and lost it: the one error for every loss. `cause` is the error of its session, if the session ended, or why its work was not healthy. */
export class LockLostError extends LeaseholdError {
  readonly code = "LOCK_LOST";

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly lockName: string,
    readonly key: string,
    /**
     * "deleted": the key is gone. Whether it went with its lease, etcd says a round trip later, for which the signal doesn't wait. If
     * so, this becomes "revoked" or "expired" then, and `cause` the SessionLostError. If no renewal is answered after a suspend, a missing
     * key counts as "expired".
     */
    readonly loss: Loss,
    cause?: Error,
    maxHoldMs?: number,
  ) {
    const limit = maxHoldMs === undefined ? "" : ` of ${maxHoldMs} ms`;
    const why = loss === "unhealthy" && cause ? `: ${cause.message.slice(0, MAX_WHY)}` : "";
    super(`Lock "${lockName}" lost: ${lossText[loss]}${limit}${why} (key ${key})`, cause && { cause });
  }

  /** @internal The same loss, as it is known since. */
  explainedBy({ loss, message, cause }: LockLostError): void {
    if (Object.isFrozen(this)) return;
    const stack = this.stack?.replace(this.message, () => message);
    Object.assign(this, { loss, message });
    const hidden = { configurable: true, writable: true };
    Object.defineProperties(this, { cause: { value: cause, ...hidden }, stack: { value: stack, ...hidden } });
  }

  override get name() {
    return "LockLostError" as const;
  }
}

/** The abort reason of `signal` after an ordinary release. */
export class LockReleasedError extends LeaseholdError {
  readonly code = "LOCK_RELEASED";

  constructor(readonly lockName: string) {
    super(`Lock "${lockName}" was released`);
  }

  override get name() {
    return "LockReleasedError" as const;
  }
}

/**
 * `timeoutMs` passed before the caller's turn came: etcd has said that an entry is ahead. If it has not, or has fallen silent
 * since, the error is EtcdUnavailableError, but for a limit of 50 ms or less, or of less than three of etcd's last answer: that
 * is a timeout unless attempts have failed. `holder` and `ahead` are etcd's answer from the last part of that time: half a second, or
 * three times as long as etcd's last answer took, but at most half of it. They are undefined if that answer was under way.
 */
export class LockTimeoutError extends LeaseholdError {
  readonly code = "LOCK_TIMEOUT";

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly lockName: string,
    readonly timeoutMs: number,
    readonly holder: Contender | undefined,
    readonly ahead: number | undefined,
    phase?: string,
  ) {
    const by = holder ? `, ${heldText(holder)}` : "";
    const queue = ahead === undefined ? "" : `, ${ahead} ahead in the queue`;
    super(`Lock "${lockName}" not acquired within ${timeoutMs} ms${by}${queue}${phase ? `: ${phase}` : ""}`);
  }

  override get name() {
    return "LockTimeoutError" as const;
  }
}

/** As many entries as `maxWaiting` allows, or more, waited when etcd looked: the caller has not joined, or has left again at once. */
export class QueueFullError extends LeaseholdError {
  readonly code = "QUEUE_FULL";

  constructor(
    readonly lockName: string,
    readonly maxWaiting: number,
    /** How many waited, as far as they were counted. */
    readonly waiting: number,
  ) {
    super(`Queue of "${lockName}" is full: ${waiting} wait, and maxWaiting is ${maxWaiting}`);
  }

  override get name() {
    return "QueueFullError" as const;
  }
}

/** A newer call with `supersede` has come while this one waited for the lock: it waits no longer, and has not held. */
export class SupersededError extends LeaseholdError {
  readonly code = "SUPERSEDED";

  constructor(
    readonly lockName: string,
    /** The `owner` of the newer call; undefined if it had left when etcd was asked. */
    readonly by: string | undefined,
  ) {
    super(`Superseded by a newer call for "${lockName}"${by === undefined ? "" : ` of "${by}"`}`);
  }

  override get name() {
    return "SupersededError" as const;
  }
}

/** The lock is still held, but less time is left than the caller asked for, or a renewal has to confirm it first. */
export class LockExpiringError extends LeaseholdError {
  readonly code = "LOCK_EXPIRING";

  constructor(
    readonly lockName: string,
    readonly remainingMs: number,
  ) {
    super(`Lock "${lockName}" has ${Math.floor(remainingMs)} ms left without a renewal`);
  }

  override get name() {
    return "LockExpiringError" as const;
  }
}

/** The gate has already admitted a newer holder: this writer must stop. */
export class StaleFenceError extends LeaseholdError {
  readonly code = "STALE_FENCE";
  /** Of equal fences, the turns decide; otherwise undefined. */
  readonly turn: number | undefined;
  readonly highestTurn: number | undefined;

  constructor(
    readonly fence: bigint,
    readonly highest: bigint,
    turns?: { readonly turn: number; readonly highestTurn: number },
  ) {
    const [stale, newer] = turns
      ? [`${fence}, turn ${turns.turn},`, `turn ${turns.highestTurn}`]
      : [`${fence}`, `${highest}`];
    super(`Fence ${stale} is stale: ${newer} was admitted before; the lock has a newer holder`);
    this.turn = turns?.turn;
    this.highestTurn = turns?.highestTurn;
  }

  override get name() {
    return "StaleFenceError" as const;
  }
}

/**
 * The abort reason of a shard's signal: the work on it has to stop. The shard stays this member's until the work has settled; then
 * `to` owns it.
 */
export class ShardMovedError extends LeaseholdError {
  readonly code = "SHARD_MOVED";

  constructor(
    readonly group: string,
    readonly shard: number,
    /** The `id` of the member that waits for it; undefined: this member leaves, and nobody waits yet. */
    readonly to: string | undefined,
  ) {
    super(`Shard ${shard} of "${group}" moves ${to === undefined ? "away" : `to ${printable(to)}`}`);
  }

  override get name() {
    return "ShardMovedError" as const;
  }
}

/** Other members of the group have another number of shards, so the same key of a user would belong to two shards. */
export class ShardCountError extends LeaseholdError {
  readonly code = "SHARD_COUNT";

  constructor(
    readonly group: string,
    readonly count: number,
    /** The number of the other members. */
    readonly found: number,
  ) {
    super(
      `Cannot use ${count} shards for "${group}": its members have ${found}. To change that, start members with { count: ${count}, ` +
        `migrate: ${found} }, and stop those with ${found}`,
    );
  }

  override get name() {
    return "ShardCountError" as const;
  }
}

/**
 * Why a leadership was not handed over. `not_found`: no such candidate waits, or none with that owner is transferable. `is_leader`: the
 * leader itself was named. `not_transferable`: the candidate doesn't say that it may be named. `blocked`: a candidate that can't be moved
 * stands before it, such as one of Go's client: wait until that one has led, or end it.
 */
export type TransferRefusal = "not_found" | "is_leader" | "not_transferable" | "blocked";

const REFUSALS: Readonly<Record<TransferRefusal, string>> = {
  not_found: "no such candidate waits that is transferable",
  is_leader: "it is the leader itself",
  not_transferable: "its campaign has none of the options transferable, priority, labels and eligible",
  blocked: "a candidate stands before it that can't be moved",
};

/** `leadership.transfer` has not handed over to the candidate that it was asked for. */
export class TransferError extends LeaseholdError {
  readonly code = "TRANSFER_REFUSED";

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly lockName: string,
    /** The owner that was named, or the key of the candidate. */
    readonly to: string,
    readonly reason: TransferRefusal,
    /** Of the candidate that is in the way, or isn't transferable. */
    readonly key: string | undefined,
    /**
     * False: the leadership goes on, and nothing was written. True: the candidate left between the check and the hand-over. The leader has
     * resigned, and the next candidate in the order of the queue leads.
     */
    readonly resigned = false,
  ) {
    const at = key === undefined ? "" : ` (key ${printable(key)})`;
    const end = resigned ? ". The leader has resigned, and the next candidate leads" : "";
    super(`Cannot transfer "${lockName}" to ${printable(to)}: ${REFUSALS[reason]}${at}${end}`);
  }

  /** @internal */
  afterResignation(): TransferError {
    return new TransferError(this.lockName, this.to, this.reason, this.key, true);
  }

  override get name() {
    return "TransferError" as const;
  }
}

/** `once` with `ifRunning: "fail"`: another call runs the slot now. */
export class OnceRunningError extends LeaseholdError {
  readonly code = "ONCE_RUNNING";

  constructor(
    readonly lockName: string,
    slot: string,
    /** Of the session that runs it; undefined if its mark doesn't say. */
    readonly owner: string | undefined,
  ) {
    super(`${slot} is running${owner === undefined ? "" : `, by ${printable(owner)}`}`);
  }

  override get name() {
    return "OnceRunningError" as const;
  }
}

/** The slot of `once` is that of another request: nothing was run, and the result of the other is not given. */
export class FingerprintMismatchError extends LeaseholdError {
  readonly code = "FINGERPRINT_MISMATCH";

  constructor(
    readonly lockName: string,
    slot: string,
    /** Of the session that has run, or runs, the other request; undefined if its mark doesn't say. */
    readonly owner: string | undefined,
  ) {
    super(`${slot} belongs to a request with another fingerprint`);
  }

  override get name() {
    return "FingerprintMismatchError" as const;
  }
}

/** What the work of a run has returned is too large to be kept, or has no JSON. The work has run, and counts as failed. */
export class ResultNotKeptError extends LeaseholdError {
  readonly code = "RESULT_NOT_KEPT";
  /** What the work has returned. */
  readonly result: unknown;

  constructor(slot: string, why: string, result: unknown) {
    super(`Cannot keep the result of ${slot}: ${why}`);
    // JSON leaves it out.
    Object.defineProperty(this, "result", { value: result, enumerable: false });
  }

  override get name() {
    return "ResultNotKeptError" as const;
  }
}

/** The work of another call, for which this one has waited, threw. */
export class RunFailedError extends LeaseholdError {
  readonly code = "RUN_FAILED";

  constructor(
    what: string,
    /** `name` and, if it was a string, `code` of what it threw, and the first 1000 characters of its message. */
    readonly failure: { readonly name: string; readonly code: string | undefined; readonly message: string },
  ) {
    super(`${what} failed in another call: ${failure.name}: ${failure.message}`);
  }

  override get name() {
    return "RunFailedError" as const;
  }
}

const byText = (owner: string | undefined): string => (owner === undefined ? "" : ` (${printable(owner)})`);

const latchText = {
  crashed: (owner: string | undefined): string =>
    `a counter${byText(owner)} has ended without counting. Count in its place, or wait with onCrash: "continue"`,
  reset: (): string => "it was reset, or its ttlMs has passed",
  unreadable: (): string => "the value of its key is none of leasehold's",
};

/** The latch will not open as it was meant to: a counter has died, or somebody has reset the latch. */
export class LatchBrokenError extends LeaseholdError {
  readonly code = "LATCH_BROKEN";

  constructor(
    readonly latchName: string,
    /** "crashed": the session of an enlisted counter ended before it counted. "reset": this round of the latch is over. */
    readonly why: "crashed" | "reset" | "unreadable",
    /** The owner of the session of the counter that crashed, if it is known. */
    readonly owner?: string,
  ) {
    super(`Latch "${latchName}" is broken: ${latchText[why](owner)}`);
  }

  override get name() {
    return "LatchBrokenError" as const;
  }
}

/** The session of a member ended before it left, or that of the holder before it released the barrier. */
export class BarrierBrokenError extends LeaseholdError {
  readonly code = "BARRIER_BROKEN";

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly barrierName: string,
    /** What the others did when they were told. */
    readonly phase: "enter" | "leave" | "hold",
    /** The owners of the sessions that ended; undefined for a client that leaves no such text, such as Go's. */
    readonly owners: readonly (string | undefined)[],
    hint = "",
  ) {
    const who =
      phase === "hold" ? "its holder" : owners.length === 1 ? "a member" : `${owners.length} members`;
    const known = owners.filter((owner) => owner !== undefined).map((owner) => printable(owner));
    const names = known.length === 0 ? "" : ` (${known.join(", ")})`;
    super(`Barrier "${barrierName}" is broken: ${who}${names} ended before the ${LEFT[phase]}${hint}`);
  }

  override get name() {
    return "BarrierBrokenError" as const;
  }
}

const LEFT = { enter: "barrier opened", leave: "end of the round", hold: "release" } as const;

/** The barrier has all its members: they wait for it to open, or are inside. The caller has left it. */
export class BarrierFullError extends LeaseholdError {
  readonly code = "BARRIER_FULL";

  constructor(
    readonly barrierName: string,
    readonly members: number,
  ) {
    super(`Barrier "${barrierName}" has its ${members} members: enter again when they have left`);
  }

  override get name() {
    return "BarrierFullError" as const;
  }
}

/** Others use the latch or the barrier of this name with another number. */
export class CountMismatchError extends LeaseholdError {
  readonly code = "COUNT_MISMATCH";

  constructor(
    /** The name of the latch or the barrier. */
    readonly lockName: string,
    readonly count: number,
    /** The number of the others. */
    readonly found: number,
  ) {
    super(`Cannot use "${lockName}" with a count of ${count}: others use it with ${found}`);
  }

  override get name() {
    return "CountMismatchError" as const;
  }
}

/** `timeoutMs` passed before a latch opened, a barrier was released, or all members had entered or left. */
export class WaitTimeoutError extends LeaseholdError {
  readonly code = "WAIT_TIMEOUT";

  constructor(
    /** The name of the latch or the barrier. */
    readonly lockName: string,
    readonly timeoutMs: number,
    /** What is missing, as far as etcd has said. */
    missing: string,
  ) {
    super(`"${lockName}" did not open within ${timeoutMs} ms: ${missing}`);
  }

  override get name() {
    return "WaitTimeoutError" as const;
  }
}

/** The call would wait for something that ends only after the call: its own async context, or its own candidate. */
export class DeadlockError extends LeaseholdError {
  readonly code = "DEADLOCK";

  constructor(
    readonly lockName: string,
    message: string,
  ) {
    super(message);
  }

  override get name() {
    return "DeadlockError" as const;
  }
}

/** What `connect` was asked for needs an optional package that cannot be loaded. `cause` is the error of its import. */
export class PackageMissingError extends LeaseholdError {
  readonly code = "PACKAGE_MISSING";

  constructor(
    readonly packageName: string,
    what: string,
    cause?: unknown,
  ) {
    super(`${what} needs the package ${packageName}: npm install ${packageName}`, { cause });
  }

  override get name() {
    return "PackageMissingError" as const;
  }
}

export type AnyLeaseholdError =
  | SessionLostError
  | SessionClosedError
  | LockLostError
  | LockReleasedError
  | LockTimeoutError
  | QueueFullError
  | SupersededError
  | LockExpiringError
  | StaleFenceError
  | DeadlockError
  | KindMismatchError
  | EtcdUnavailableError
  | EtcdRefusedError
  | PackageMissingError
  | ShardMovedError
  | ShardCountError
  | TransferError
  | OnceRunningError
  | FingerprintMismatchError
  | ResultNotKeptError
  | RunFailedError
  | LatchBrokenError
  | BarrierBrokenError
  | BarrierFullError
  | CountMismatchError
  | WaitTimeoutError;

const kindText: Record<FoundKind, string> = {
  mutex: "a Mutex",
  reader: "a reader of an RwLock",
  writer: "a writer of an RwLock",
  permit: "a Semaphore",
  weighted: "a weighted Semaphore",
  priority: "a Mutex with priorities",
  all: "lockAll",
  leadership: "an Election",
  web_lock: "a web lock",
  unknown: "a client that does not say its kind, such as Go's Mutex",
};

function conflictText(
  asked: string,
  found: { readonly name: string; readonly kind: FoundKind },
  key: string,
): string {
  const user = `is in use by ${kindText[found.kind]} (key ${printable(key)})`;
  if (found.name === asked) return `it ${user}. Rename one of them`;
  return `"${printable(found.name)}" ${user}, and a name below another one blocks it. Rename one of them`;
}

function markText(key: string): string {
  const marks = printable(key.slice(0, key.indexOf(MARKS) + MARKS.length));
  return `an older version of once has left marks in its queue (key ${printable(key)}). Delete all keys that begin with "${marks}"`;
}

/**
 * The queue has an entry that the caller cannot share it with: of another kind, such as a Semaphore under the name of a
 * Mutex, or of a name below the caller's own, such as "a/17" below "a". The caller has left the queue.
 */
export class KindMismatchError extends LeaseholdError {
  override get name() {
    return "KindMismatchError" as const;
  }
  readonly code = "KIND_MISMATCH";
  readonly lockName: string;
  /** What the caller asked for. */
  readonly kind: LockKind;
  /** What the entry is, as far as its key and value show. An entry of `lockAll` is found as "mutex". */
  readonly found: FoundKind;
  /** The name of the entry: `lockName`, or a name below it. */
  readonly foundName: string;

  constructor(
    asked: { readonly name: string; readonly kind: LockKind },
    found: { readonly name: string; readonly kind: FoundKind; readonly isMark?: true },
    key: string,
  ) {
    const conflict = found.isMark ? markText(key) : conflictText(asked.name, found, key);
    super(`Cannot use "${asked.name}" for ${kindText[asked.kind]}: ${conflict}`);
    this.lockName = asked.name;
    this.kind = asked.kind;
    this.found = found.kind;
    this.foundName = found.name;
  }
}

/**
 * The statuses of RFC 9110 and RFC 6585, and, for idempotency keys, those of draft-ietf-httpapi-idempotency-key-header: 409 while the first
 * request runs, and 422 for another request with the same key. 429: others have the lock, and a later request may get it. 503: etcd or the session
 * failed. 412: the resource has seen a younger fence. 500: the program is wrong.
 */
const STATUS: Readonly<Record<LeaseholdErrorCode, 409 | 412 | 422 | 429 | 500 | 503>> = {
  SESSION_LOST: 503,
  SESSION_CLOSED: 503,
  LOCK_LOST: 503,
  LOCK_EXPIRING: 503,
  ETCD_UNAVAILABLE: 503,
  ETCD_REFUSED: 503,
  LOCK_TIMEOUT: 429,
  QUEUE_FULL: 429,
  SUPERSEDED: 409,
  STALE_FENCE: 412,
  LOCK_RELEASED: 500,
  SHARD_MOVED: 503,
  SHARD_COUNT: 500,
  TRANSFER_REFUSED: 409,
  ONCE_RUNNING: 409,
  FINGERPRINT_MISMATCH: 422,
  RESULT_NOT_KEPT: 500,
  RUN_FAILED: 500,
  LATCH_BROKEN: 503,
  BARRIER_BROKEN: 503,
  BARRIER_FULL: 429,
  COUNT_MISMATCH: 500,
  WAIT_TIMEOUT: 429,
  DEADLOCK: 500,
  KIND_MISMATCH: 500,
  PACKAGE_MISSING: 500,
};

/**
 * The HTTP status of a request that failed with `error`: 429 for LOCK_TIMEOUT, QUEUE_FULL, WAIT_TIMEOUT and BARRIER_FULL; 503, with which a
 * client may retry, for etcd that does not answer or refuses, for a session, lock or shard that is lost, closed, expiring or moved, and for a
 * broken latch or barrier; 412 for STALE_FENCE; 409 for ONCE_RUNNING, SUPERSEDED and TRANSFER_REFUSED; 422 for FINGERPRINT_MISMATCH; 500 for
 * any other error of leasehold. undefined for an error that leasehold did not create, such as the reason of an aborted signal. A `tryLock` that
 * returns undefined has no error: answer with 409 or 429.
 */
export function httpStatusOf(error: unknown): 409 | 412 | 422 | 429 | 500 | 503 | undefined {
  // Another version in the process may have other codes.
  return isLeaseholdError(error) ? (STATUS[error.code] ?? 500) : undefined;
}

/**
 * Whether leasehold created `error`, and, with `code`, whether it has that code: `isLeaseholdError(e, "LOCK_TIMEOUT")` narrows
 * `e` to LockTimeoutError. Unlike `instanceof`, it also recognizes errors of another copy of leasehold in this process, such as
 * another version or a bundled one. It is false for what JSON or a structured clone has made of an error.
 * @throws {RangeError} when leasehold has no such `code`.
 */
export function isLeaseholdError<C extends LeaseholdErrorCode = LeaseholdErrorCode>(
  error: unknown,
  code?: C,
): error is Extract<AnyLeaseholdError, { readonly code: C }> {
  if (code !== undefined && !Object.hasOwn(STATUS, code))
    throw rangeError("code", `one of ${Object.keys(STATUS).join(", ")}`, code);
  return isBranded(error) && (code === undefined || error.code === code);
}
