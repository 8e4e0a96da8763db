import type { Credentials } from "../../../index.js";
import { rangeError } from "../../../base/options/check.js";
import { AbortFanOut } from "../../../base/util/abort.js";
import type { Clock } from "../../../base/util/clock.js";
import { printable } from "../../../base/util/printable.js";
import type { FindingJson } from "../json-types.js";

/** `skip`: it could not be checked. */
export type Mark = FindingJson["mark"];

/** What was measured. */
type Measured = NonNullable<FindingJson["measured"]>;

/** The outcome of one check. */
export interface Finding {
  readonly check: string;
  readonly mark: Mark;
  /** One line that is safe to print: texts of servers are excerpts. */
  readonly detail: string;
  /** What to do, one line. */
  readonly hint?: string;
  readonly measured?: Measured;
}

export const ok = (check: string, detail: string, measured?: Measured): Finding => ({
  check,
  mark: "ok",
  detail,
  ...(measured && { measured: rounded(measured) }),
});

/** To a tenth: clocks have more digits than they know. */
export const rounded = (measured: Measured): Measured =>
  Object.fromEntries(
    Object.entries(measured).map(([name, value]) => [
      name,
      typeof value === "number" ? Math.round(value * 10) / 10 : value,
    ]),
  );

export const warn = (check: string, detail: string, hint: string): Finding => ({
  check,
  mark: "warn",
  detail,
  hint,
});

export const fail = (check: string, detail: string, hint: string): Finding => ({
  check,
  mark: "fail",
  detail,
  hint,
});

export const skip = (check: string, detail: string): Finding => ({ check, mark: "skip", detail });

/** What a server has sent, short and without control characters. */
export const excerpt = (text: string, length = 80): string => printable(text.trim(), length);

/** What one endpoint is examined with. */
export interface Exam {
  /** As `connect` has it: `https://host:2379`. */
  readonly host: string;
  readonly hostname: string;
  readonly port: number;
  readonly secure: boolean;
  readonly credentials: Credentials | undefined;
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  readonly prefix: string;
  readonly ttlSeconds: number;
  /** Limits each step: one connection, one request. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Texts that no output may contain: the password and the tokens. */
  readonly secrets: Set<string>;
}

/** What a member says about itself. IDs are decimal, as in etcd's JSON. */
export interface MemberStatus {
  readonly clusterId: string;
  readonly memberId: string;
  readonly leader: string;
  readonly raftTerm: string;
  readonly appliedIndex: number;
  readonly version: string;
  readonly isLearner: boolean;
  readonly errors: readonly string[];
}

/** A member as the cluster lists it. */
export interface ListedMember {
  readonly id: string;
  readonly name: string;
  readonly isLearner: boolean;
  readonly clientUrls: readonly string[];
}

/** What was found out about one endpoint. */
export interface EndpointReport {
  readonly exam: Exam;
  readonly findings: Finding[];
  /** etcd has answered there, and lets this program use it. */
  works: boolean;
  version?: string;
  token?: string;
  status?: MemberStatus;
  members?: readonly ListedMember[];
}

/** One part of an examination. Resolves with false if the rest makes no sense. */
export type Step = (report: EndpointReport) => Promise<boolean>;

export function examOf(host: string, rest: Omit<Exam, "host" | "hostname" | "port" | "secure">): Exam {
  if (!/^https?:/.test(host)) throw rangeError("endpoints", "http:// or https:// for doctor", host);
  const { hostname, port, protocol } = new URL(host);
  const secure = protocol === "https:";
  return {
    ...rest,
    credentials: secure ? rest.credentials : undefined,
    host,
    hostname: hostname.replace(/^\[|\]$/g, ""),
    // The URL leaves out a port that its scheme has by default.
    port: Number(port || (secure ? 443 : 80)),
    secure,
  };
}

/** Nothing came in time. */
export class NoAnswerError extends Error {
  constructor(readonly afterMs: number) {
    super(`no answer within ${afterMs} ms`);
  }
}

/** Begins something and returns what stops it. Exactly one of the two functions is called, and not at once. */
type Begin<T> = (resolve: (value: T) => void, reject: (error: unknown) => void) => () => void;

const waits = new AbortFanOut();

/** Ends with the value, with the reason, after `timeoutMs` with a NoAnswerError, or on abort with the signal's reason. */
export function limited<T>({ clock, signal, timeoutMs }: Exam, begin: Begin<T>): Promise<T> {
  signal.throwIfAborted();
  return new Promise<T>((resolve, reject) => {
    const end = (settle: () => void): void => {
      timer.cancel();
      unlisten();
      stop();
      settle();
    };
    const timer = clock.after(timeoutMs, () => end(() => reject(new NoAnswerError(timeoutMs))));
    const unlisten = waits.add(signal, () => end(() => reject(signal.reason)));
    const stop = begin(
      (value) => end(() => resolve(value)),
      (error) => end(() => reject(error)),
    );
  });
}
