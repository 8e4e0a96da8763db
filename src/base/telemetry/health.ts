import { jsonOf } from "../../errors.js";
import type { SessionStateName } from "./messages.js";

/** Frozen data. Bigints become decimal strings in JSON; `toJSON` is not enumerable, so logs show only the data. */
export function plain<T extends object>(data: T): Readonly<T> {
  const toJSON = (): Record<string, unknown> =>
    Object.fromEntries(Object.entries(data).map(([field, value]) => [field, jsonOf(value)]));
  return Object.freeze(Object.defineProperty(data, "toJSON", { value: toJSON }));
}

/**
 * The state of one host, as far as this process knows it. `in_use`: calls go to it. `failed`: calls have left it, and that was within the last
 * minute or no other host has answered since. `unused`: calls go elsewhere, so its present state is unknown.
 */
export type MemberState = "in_use" | "failed" | "unused";

/** One host, as far as this process knows it. */
export interface MemberHealth {
  readonly host: string;
  readonly state: MemberState;
  /** Calls go to this host. */
  readonly inUse: boolean;
  /** Whether the host has not failed since it last answered, or is unused. A host that was never used is ok. */
  readonly ok: boolean;
  /** Message of its last failure, until it answers again. */
  readonly error: string | undefined;
  /** Milliseconds since that failure. */
  readonly failedMs: number | undefined;
}

/** The guardian, with `guardian: true`. */
export interface GuardianHealth {
  /** Whether the guardian runs, as far as this process knows, or has nothing to guard. Without it, a lease outlives a crash until its TTL has passed. */
  readonly ok: boolean;
  /** Why it does not run. */
  readonly error: string | undefined;
}

/** The connection to etcd, as far as this process knows it without asking. */
export interface ClusterHealth {
  /** No session is in jeopardy or lost, and the last contact with etcd did not fail. */
  readonly ok: boolean;
  /**
   * State of the standing session. Before one was opened, that of the session with the nearest deadline among those that
   * `lead` and `Session.open` have opened; `none` if there is none.
   */
  readonly state: "none" | SessionStateName;
  /** Milliseconds until the deadline of that session; 0 if there is none. */
  readonly remainingMs: number;
  readonly members: readonly MemberHealth[];
  /** With `guardian: true` only. It does not count for `ok`: locks work without it. */
  readonly guardian?: GuardianHealth | undefined;
}

/** A session, as far as its health is concerned. */
export interface HealthOfSession {
  readonly state: SessionStateName;
  remainingMs(): number;
}

/** The connections of a cluster. */
export interface Contact {
  /** The host that calls go to. */
  readonly hostInUse: string | undefined;
  /** The last contact with a member failed. */
  readonly lastContactFailed: boolean;
  /** The last failure of each host that has not answered since, and how long ago it was. */
  readonly silentHosts: ReadonlyMap<string, { readonly error: Error; readonly ms: number }>;
}

/** Later, the failure of a host that is no longer asked says nothing about it. */
const RECENT_MS = 60_000;

/** What a health report is made of. */
export interface HealthSource {
  readonly hosts: readonly string[];
  readonly contact: Contact;
  readonly closed: boolean;
  readonly standing: HealthOfSession | undefined;
  readonly sessions: Iterable<HealthOfSession>;
  readonly guardian: GuardianHealth | undefined;
}

export function healthOf({
  hosts,
  contact,
  closed,
  standing,
  sessions,
  guardian,
}: HealthSource): ClusterHealth {
  const all = [...sessions];
  const session = standing ?? all.toSorted((a, b) => a.remainingMs() - b.remainingMs())[0];
  const state = closed ? "closed" : (session?.state ?? "none");
  const endangered = all.some((each) => each.state === "jeopardy");
  const ok = !contact.lastContactFailed && !endangered && state !== "lost" && state !== "jeopardy" && !closed;
  const remainingMs = session?.remainingMs() ?? 0;
  const members = Object.freeze(hosts.map((host) => memberOf(host, contact)));
  return plain({ ok, state, remainingMs, members, ...(guardian && { guardian: plain(guardian) }) });
}

function memberOf(host: string, { hostInUse, lastContactFailed, silentHosts }: Contact): MemberHealth {
  const { error, ms: failedMs } = silentHosts.get(host) ?? {};
  const inUse = host === hostInUse;
  const hasFailed = failedMs !== undefined && (inUse || lastContactFailed || failedMs < RECENT_MS);
  const state = inUse ? "in_use" : hasFailed ? "failed" : "unused";
  return plain({ host, state, inUse, ok: !hasFailed, error: error?.message, failedMs });
}
