import type { SessionStateName } from "../diagnostics/messages.js";
import { plain } from "./plain.js";

/** What this process knows of one host. */
export interface MemberHealth {
  readonly host: string;
  /** Calls go to this host. */
  readonly inUse: boolean;
  /** It has not failed since it last answered. A host that was never used is ok. */
  readonly ok: boolean;
  /** Message of its last failure, until it answers again. */
  readonly error: string | undefined;
}

/** What this process knows of its connection to etcd, without asking. */
export interface ClusterHealth {
  /** No session is in jeopardy or lost, and the last contact with etcd did not fail. */
  readonly ok: boolean;
  /** State of the standing session; `none` before one was opened. */
  readonly state: "none" | SessionStateName;
  /** Milliseconds until the deadline of the standing session; 0 if there is none. */
  readonly remainingMs: number;
  readonly members: readonly MemberHealth[];
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
  readonly contactFailed: boolean;
  /** The last failure of each host that has not answered since. */
  readonly failureOf: ReadonlyMap<string, Error>;
}

/** What a health report is made of. */
export interface HealthSource {
  readonly hosts: readonly string[];
  readonly contact: Contact;
  readonly closed: boolean;
  readonly standing: HealthOfSession | undefined;
  readonly sessions: Iterable<HealthOfSession>;
}

export function healthOf({ hosts, contact, closed, standing, sessions }: HealthSource): ClusterHealth {
  const state = closed ? "closed" : (standing?.state ?? "none");
  const endangered = [...sessions].some((session) => session.state === "jeopardy");
  const ok = !contact.contactFailed && !endangered && state !== "lost" && state !== "jeopardy" && !closed;
  const remainingMs = standing?.remainingMs() ?? 0;
  const members = hosts.map((host) => {
    const error = contact.failureOf.get(host)?.message;
    return plain({ host, inUse: contact.hostInUse === host, ok: error === undefined, error });
  });
  return plain({ ok, state, remainingMs, members: Object.freeze(members) });
}
