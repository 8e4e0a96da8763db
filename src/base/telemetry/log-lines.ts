import { isLeaseholdError, silenceOf } from "../../errors.js";
import type { Timer } from "../util/clock.js";
import { queueMicrotask } from "../util/own-context.js";
import { printable } from "../util/printable.js";
import type { LineContext, LogFields } from "./log.js";
import {
  type AcquireMessage,
  type CallMessage,
  type CredentialsMessage,
  type ElectionMessage,
  type GuardianMessage,
  type HoldEndMessage,
  type HoldLongMessage,
  KEPT,
  type LockMessage,
  type MemberMessage,
  type RejoinMessage,
  type RenewedMessage,
  type SessionMessage,
  type ShardMessage,
} from "./messages.js";
import { isError } from "../util/realm.js";

/** A name, an owner or the like on one line of a log, in quotation marks. */
export const quoted = (text: string): string => `"${printable(text)}"`;

/** As one reads it: `250 ms`, `1.5 s`, `41 s`, `4 min`, `3 h`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${Number((ms / 1000).toFixed(1))} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 3_600_000)} h`;
}

const hex = (leaseId: bigint): string => leaseId.toString(16);
const session = (leaseId: bigint): string => `session ${hex(leaseId)}`;

/** The code of an error of leasehold, or else its name. */
function codeOf(error: unknown): Pick<LogFields, "error"> {
  if (!isError(error)) return {};
  return { error: isLeaseholdError(error) ? error.code : error.name };
}

/** The message of what was thrown, which may be anything. */
function reason(error: unknown): string {
  return printable(isError(error) ? error.message : String(error), 500);
}

/** The last failure of each member. */
function failures(members: ReadonlyMap<string, Error>): string {
  return [...members].map(([host, error]) => `${printable(host)}: ${reason(error)}`).join("; ");
}

/** A few of many names, with their number. */
export function listed(names: readonly string[], count: number): string {
  const rest = count > names.length ? ` and ${count - names.length} more` : "";
  return `${names.map(quoted).join(", ")}${rest}`;
}

/** A renewal that takes longer than this part of the TTL is slow: the session changes members soon after. */
const SLOW_PART = 1 / 6;
/** An episode of slow renewals ends with one that takes half of that. */
const FAST_PART = 1 / 12;
const MAX_NAMES = 5;

interface Lost {
  readonly names: string[];
  count: number;
}

/** Jeopardy, loss and slow renewals of sessions: a line when one begins, and one when it ends. */
export class SessionLines {
  /** When the jeopardy of a session began. */
  readonly #jeopardy = new Map<bigint, number>();
  readonly #slow = new Set<bigint>();
  /** Holds that ended with their session, until the line about the session is written. */
  readonly #lost = new Map<bigint, Lost>();

  constructor(private readonly context: LineContext) {}

  session(message: SessionMessage): void {
    const { leaseId, to } = message;
    const since = this.#jeopardy.get(leaseId);
    if (to === "jeopardy") return this.#inJeopardy(message);
    this.#jeopardy.delete(leaseId);
    // The holds of the session end in the same turn of the event loop, and are listed in the line.
    if (to !== "live") return queueMicrotask(() => this.#ended(message));
    const { clock } = this.context;
    const about = aboutSession(message);
    if (since === undefined)
      return this.context.write("debug", `${session(leaseId)} opened`, { event: "session.opened", ...about });
    const durationMs = clock.monotonic() - since;
    const text = `${session(leaseId)} is renewed again, after ${duration(durationMs)} in jeopardy`;
    this.context.write("info", text, { event: "session.renewed", ...about, durationMs });
  }

  renewed({ leaseId, durationMs, ttlSeconds }: RenewedMessage): void {
    const ttlMs = ttlSeconds * 1000;
    const isSlow = this.#slow.has(leaseId);
    const took = `${session(leaseId)} was renewed in ${duration(durationMs)}`;
    const about = { session: hex(leaseId), durationMs };
    if (!isSlow && durationMs > ttlMs * SLOW_PART) {
      this.#slow.add(leaseId);
      const slow = `${took}, which is slow for a TTL of ${ttlSeconds} s`;
      this.context.write("warn", slow, { event: "session.slow", ...about });
    } else if (isSlow && durationMs < ttlMs * FAST_PART) {
      this.#slow.delete(leaseId);
      this.context.write("info", `${took}: no longer slow`, { event: "session.fast", ...about });
    }
  }

  /** A hold ended with its session. */
  holdLost({ leaseId, names }: HoldEndMessage): void {
    const lost = this.#lost.get(leaseId) ?? { names: [], count: 0 };
    this.#lost.set(leaseId, lost);
    lost.count += names.length;
    lost.names.push(...names.slice(0, MAX_NAMES - lost.names.length));
  }

  #inJeopardy(message: SessionMessage): void {
    const { leaseId, ttlSeconds, sinceLastRenewalMs, remainingMs } = message;
    this.#jeopardy.set(leaseId, this.context.clock.monotonic());
    const passed = `last renewed ${duration(sinceLastRenewalMs)} ago (TTL ${ttlSeconds} s)`;
    const left = `${duration(remainingMs)} left`;
    const text = `${session(leaseId)} in jeopardy: ${passed}, ${left}${causeOf(message)}`;
    this.context.write("warn", text, { event: "session.jeopardy", ...aboutSession(message), remainingMs });
  }

  #ended(message: SessionMessage): void {
    const { leaseId, to, error } = message;
    const lost = this.#lost.get(leaseId);
    this.#lost.delete(leaseId);
    this.#slow.delete(leaseId);
    const what =
      to === "lost" ? (error?.message ?? `${session(leaseId)} lost`) : `${session(leaseId)} closed`;
    const locks = lost ? `; locks that ended with it: ${listed(lost.names, lost.count)}` : "";
    const level = to === "lost" ? "error" : lost ? "warn" : "debug";
    const names = lost ? { names: lost.names } : {};
    const about = { ...aboutSession(message), ...names, ...codeOf(error) };
    this.context.write(level, `${what}${locks}`, { event: `session.${to}`, ...about });
  }
}

const aboutSession = ({ leaseId, owner }: SessionMessage): Pick<LogFields, "session" | "owner"> => ({
  session: hex(leaseId),
  owner,
});

/** Why renewals are missing. A process that was paused for most of the time could not have received an answer. */
function causeOf({ stalledMs, sinceLastRenewalMs, members }: SessionMessage): string {
  if (stalledMs * 2 > sinceLastRenewalMs) return `; this process was paused for ${duration(stalledMs)}`;
  const silence = `; ${silenceOf(members)}`;
  return members.size > 0 ? `${silence} (${failures(members)})` : silence;
}

/** All members may have failed for a moment while calls move to a member that failed earlier. */
const OUTAGE_MS = 5000;
const UNKNOWN = new Error("no reason was given");

/** One line when another member is in use after a failure, one when none answers, and one for each refused host. */
export class MemberLines {
  /** The last failure of each member that was not in use since. */
  readonly #failures = new Map<string, Error>();
  /** Members that failed since one was last in use. */
  readonly #news = new Map<string, Error>();
  #allFailedAt = 0;
  #outage: Timer | undefined;
  #outageWritten = false;

  constructor(private readonly context: LineContext) {}

  member({ host, hosts, state, error = UNKNOWN }: MemberMessage): void {
    if (state === "up") return this.#up(host);
    const before = this.#failures.get(host)?.message;
    this.#failures.set(host, error);
    this.#news.set(host, error);
    if (state === "refused" && error.message !== before)
      this.context.write("warn", `${printable(host)} refused: ${reason(error)}`, {
        event: "member.refused",
        host,
        ...codeOf(error),
      });
    const allFailed = hosts.every((each) => this.#failures.has(each));
    if (!allFailed || this.#outage !== undefined) return;
    this.#allFailedAt = this.context.clock.monotonic();
    this.#outage = this.context.clock.after(OUTAGE_MS, () => this.#noneAnswers());
    this.#outage.unref?.();
  }

  close(): void {
    this.#outage?.cancel();
  }

  #noneAnswers(): void {
    this.#outageWritten = true;
    const durationMs = this.context.clock.monotonic() - this.#allFailedAt;
    const text = `no member of etcd has answered for ${duration(durationMs)}: ${failures(this.#failures)}`;
    this.context.write("warn", text, { event: "etcd.silent", durationMs });
  }

  #up(host: string): void {
    const using = `using ${printable(host)}`;
    if (this.#outageWritten) {
      const durationMs = this.context.clock.monotonic() - this.#allFailedAt;
      const text = `${using}: etcd answers again after ${duration(durationMs)}`;
      this.context.write("info", text, { event: "etcd.answers", host, durationMs });
    } else if (this.#news.size > 0) {
      const failed = [...this.#news].map(([each, error]) => `${printable(each)} failed (${reason(error)})`);
      this.context.write("warn", `${failed.join(", ")}; ${using}`, { event: "member.changed", host });
    } else {
      this.context.write("debug", using, { event: "member.used", host });
    }
    this.#outage?.cancel();
    this.#outage = undefined;
    this.#outageWritten = false;
    this.#news.clear();
    this.#failures.delete(host);
  }
}

/** One line when the certificates, or user and password, could not be read again, and one when they could. */
export function credentialsLine(context: LineContext, { option, error }: CredentialsMessage): void {
  if (error === undefined)
    return context.write("info", `${option}() works again`, { event: "credentials.read" });
  const text = `${option}() has failed; the previous ${KEPT[option]} stay in use: ${reason(error)}`;
  context.write("warn", text, { event: "credentials.kept", ...codeOf(error) });
}

/** One line when the guardian has ended, and one when another one runs. */
export function guardianLine(context: LineContext, { error }: GuardianMessage): void {
  if (error === undefined)
    return context.write("info", "the guardian is running again", { event: "guardian.running" });
  const text = `the guardian has ended (${reason(error)}). Until another one runs, a lease outlives a crash until its TTL has passed`;
  context.write("warn", text, { event: "guardian.ended", ...codeOf(error) });
}

const lock = ({ kind, names }: LockMessage): string =>
  `${kind === "web_lock" ? "web lock" : kind} ${listed(names.slice(0, MAX_NAMES), names.length)}`;

const aboutLock = (message: LockMessage): Pick<LogFields, "kind" | "name" | "names"> => ({
  kind: message.kind,
  name: message.name,
  ...(message.names.length > 1 && { names: message.names.slice(0, MAX_NAMES) }),
});

const aboutHold = (message: HoldEndMessage | HoldLongMessage): Omit<LogFields, "event"> => ({
  ...aboutLock(message),
  session: hex(message.leaseId),
  ...(message.fence !== undefined && { fence: String(message.fence) }),
  owner: message.owner,
  durationMs: message.heldMs,
});

/** Holds that end in an unusual way or last too long; and, for debugging, every acquisition, release and repeated call. */
export class LockLines {
  constructor(private readonly context: LineContext) {}

  acquired(call: AcquireMessage): void {
    const waited = call.waitedMs === undefined ? "" : ` after ${duration(call.waitedMs)}`;
    const fence = call.fence === undefined ? "" : `, fence ${call.fence}`;
    const { outcome = "error", waitedMs } = call;
    const about = { ...aboutLock(call), ...(waitedMs !== undefined && { durationMs: waitedMs }) };
    if (outcome === "granted")
      return this.context.write("debug", `acquired ${lock(call)}${waited}${fence}`, {
        event: "lock.acquired",
        ...about,
        ...(call.fence !== undefined && { fence: String(call.fence) }),
      });
    const because = call.error === undefined ? "" : `: ${reason(call.error)}`;
    this.context.write("debug", `${lock(call)} not acquired${waited} (${outcome})${because}`, {
      event: "lock.not_acquired",
      ...about,
      ...codeOf(call.error),
    });
  }

  holdEnded(message: HoldEndMessage): void {
    const { heldMs } = message;
    const held = `after ${duration(heldMs)}`;
    if (message.reason === "released")
      return this.context.write("debug", `released ${lock(message)} ${held}`, {
        event: "lock.released",
        ...aboutHold(message),
      });
    if (message.reason === "max_hold")
      return this.context.write("warn", `${lock(message)} ended ${held}, the limit of its maxHoldMs`, {
        event: "lock.max_hold",
        ...aboutHold(message),
      });
    const cause = message.error ? `: ${reason(message.error)}` : "";
    const about = { event: "lock.lost", ...aboutHold(message), ...codeOf(message.error) };
    this.context.write("error", `${lock(message)} lost ${held}${cause}`, about);
  }

  heldLong(message: HoldLongMessage): void {
    const limit = `longer than its warnHoldMs of ${duration(message.warnHoldMs)}`;
    const about = { event: "lock.held_long", ...aboutHold(message) };
    this.context.write("warn", `${lock(message)} held for ${duration(message.heldMs)}, ${limit}`, about);
  }

  called({ what, attempts, durationMs = 0, host, error }: CallMessage): void {
    if (attempts < 2) return;
    const end = error === undefined ? `answered by ${printable(host ?? "etcd")}` : `failed: ${reason(error)}`;
    const took = `${attempts} attempts and ${duration(durationMs)}`;
    this.context.write("debug", `call "${printable(what)}" took ${took}, ${end}`, {
      event: "call.repeated",
      durationMs,
      ...(host !== undefined && { host }),
      ...codeOf(error),
    });
  }
}

/** Lines about candidates. Only the first, second, fourth, eighth failure in a row, and so on, has a line. */
export class ElectionLines {
  /** Failures in a row, by election. */
  readonly #failures = new Map<string, number>();

  constructor(private readonly context: LineContext) {}

  election(message: ElectionMessage): void {
    const { state, name } = message;
    if (state === "retrying") return this.#retrying(message);
    if (state === "elected" || state === "stopped") this.#failures.delete(name);
    const fence = message.fence === undefined ? "" : ` (fence ${message.fence})`;
    const because = message.error ? `: ${reason(message.error)}` : "";
    const level = state === "lost" ? "warn" : state === "elected" || state === "resigned" ? "info" : "debug";
    this.context.write(level, `election ${quoted(name)}: ${state}${fence}${because}`, {
      event: `election.${state}`,
      ...aboutElection(message),
    });
  }

  #retrying(message: ElectionMessage): void {
    const { name, error, delayMs = 0 } = message;
    const failures = (this.#failures.get(name) ?? 0) + 1;
    this.#failures.set(name, failures);
    if (!Number.isInteger(Math.log2(failures))) return;
    const times = failures === 1 ? "a campaign failed" : `${failures} campaigns in a row failed`;
    const next = `the next one follows in ${duration(delayMs)}`;
    this.context.write("warn", `election ${quoted(name)}: ${times} (${reason(error)}); ${next}`, {
      event: "election.retrying",
      ...aboutElection(message),
    });
  }
}

const aboutElection = ({ name, fence, owner, error }: ElectionMessage): Omit<LogFields, "event"> => ({
  kind: "leadership",
  name,
  ...(fence !== undefined && { fence: String(fence) }),
  ...(owner !== undefined && { owner }),
  ...codeOf(error),
});

/** Work on shards that does not stop, or fails. A loss has the line of the lock, or of the session. */
export function shardLine(context: LineContext, message: ShardMessage): void {
  const { name, shard, state, fence, drainMs = 0, error } = message;
  if (state !== "stuck" && state !== "failed") return;
  const what =
    state === "stuck"
      ? `has not settled ${duration(drainMs)} after its signal, and keeps the shard`
      : `has failed again and again (${reason(error)}); it is left to other members for a minute`;
  context.write("warn", `the work on shard ${shard} of ${quoted(name)} ${what}`, {
    event: `shard.${state}`,
    name,
    fence: String(fence),
    ...(state === "stuck" ? { durationMs: drainMs } : codeOf(error)),
  });
}

/** The pauses before calls of one session begin again are up to 1 s. */
const GATHER_MS = 1000;

/**
 * One line for all waits that begin anew within a second. Of the failures of a call in a row, the first, second, fourth, eighth and
 * so on count.
 */
export class RejoinLines {
  #waits = 0;
  readonly #names = new Set<string>();
  #first: RejoinMessage | undefined;
  #timer: Timer | undefined;

  constructor(private readonly context: LineContext) {}

  rejoin(message: RejoinMessage): void {
    if (!Number.isInteger(Math.log2(message.failures))) return;
    this.#waits++;
    for (const name of message.names) this.#names.add(name);
    if (this.#first !== undefined) return;
    this.#first = message;
    this.#timer = this.context.clock.after(GATHER_MS, () => this.#write(message));
    this.#timer.unref?.();
  }

  close(): void {
    this.#timer?.cancel();
    if (this.#first) this.#write(this.#first);
  }

  #write({ error, leaseId }: RejoinMessage): void {
    const places = this.#waits === 1 ? "the place" : `${this.#waits} places`;
    // A call whose session could not be opened had no place yet.
    const what = leaseId === undefined ? "not in the queue yet" : `lost ${places} in the queue`;
    const first = [...this.#names].slice(0, MAX_NAMES);
    const names = listed(first, this.#names.size);
    this.#first = undefined;
    this.#waits = 0;
    this.#names.clear();
    this.context.write("warn", `${what} for ${names} (${reason(error)}); joining again`, {
      event: "wait.rejoined",
      names: first,
      ...codeOf(error),
    });
  }
}

/** How long nothing happens before a program probably forgot to close its cluster. */
const IDLE_MS = 5000;

/**
 * One line for a program that does not end: an open session keeps its process alive. One timer for a cluster, not for a lock:
 * while there is something to do, `used` notes the time only.
 */
export class IdleLine {
  #timer: Timer | undefined;
  #usedAt = 0;
  #written = false;

  constructor(
    private readonly context: LineContext,
    /** Whether a session is open, and nothing is held or waited for. */
    private readonly isIdle: () => boolean,
  ) {}

  /** A session was opened, or a call for a lock or a hold has ended. */
  used(): void {
    if (this.#written) return;
    this.#usedAt = this.context.clock.monotonic();
    if (this.#timer === undefined) this.#wait(IDLE_MS);
  }

  close(): void {
    this.#written = true;
    this.#timer?.cancel();
  }

  #wait(ms: number): void {
    this.#timer = this.context.clock.after(ms, () => this.#check());
    this.#timer.unref?.();
  }

  #check(): void {
    this.#timer = undefined;
    const leftMs = this.#usedAt + IDLE_MS - this.context.clock.monotonic();
    if (leftMs > 0) return this.#wait(leftMs);
    // The next end of a hold, or of a call, starts the timer again.
    if (!this.isIdle()) return;
    this.#written = true;
    const what = "no lock has been held or waited for in 5 s, and the open session keeps the process alive";
    this.context.write("debug", `${what}: call cluster.close() when you are done`, { event: "cluster.idle" });
  }
}
