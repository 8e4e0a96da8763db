import { printable } from "../util/printable.js";
import {
  type ClusterHealth,
  type Contact,
  type GuardianHealth,
  healthOf,
  type HealthOfSession,
  plain,
} from "./health.js";
import type { LockKind, SessionStateName } from "./messages.js";

/** A session of this process that is not over. */
export interface SessionSnapshot {
  readonly leaseId: bigint;
  readonly owner: string;
  readonly state: SessionStateName;
  /** The TTL that etcd granted, in seconds. */
  readonly ttlSeconds: number;
  /** Milliseconds until its deadline if no further renewal is accepted. */
  readonly remainingMs: number;
}

/** A lock that this process holds: of `lockAll`, one for each name. */
export interface HoldSnapshot {
  readonly kind: LockKind;
  readonly name: string;
  readonly label: string | undefined;
  /** The lease of its session. */
  readonly leaseId: bigint;
  readonly key: string;
  /** Create revision of the key. */
  readonly revision: bigint;
  /** The fencing token of an exclusive hold. */
  readonly fence: bigint | undefined;
  /** Milliseconds since the grant. */
  readonly heldMs: number;
}

/** The key of a sticky lock that no caller has: its session takes it again without a request, or gives it back. */
export interface KeptSnapshot {
  readonly kind: LockKind;
  readonly name: string;
  /** The lease of its session. */
  readonly leaseId: bigint;
  readonly key: string;
  /** Create revision of the key. */
  readonly revision: bigint;
  /** Milliseconds since the last release. */
  readonly idleMs: number;
}

/** A call of this process that waits for its turn. */
export interface WaitSnapshot {
  readonly kind: LockKind;
  /** One name, except for `lockAll`. Of a web lock, the name that was requested. */
  readonly names: readonly string[];
  /** The queue that it waits in: one of `names`, except for a web lock. */
  readonly name: string;
  readonly label: string | undefined;
  readonly leaseId: bigint;
  /** Key and create revision of its entry under `name`; undefined until etcd has reported that it is in the queue. */
  readonly key: string | undefined;
  readonly revision: bigint | undefined;
  /** Milliseconds since it joined the line with this session. */
  readonly waitedMs: number;
  /** Entries that must end before its turn, by the last read of the queue; undefined if none was needed. */
  readonly ahead: number | undefined;
}

/** The sessions, holds, kept keys and waits of one cluster object in this process. Bigints become decimal strings in JSON. */
export interface ClusterSnapshot {
  readonly sessions: readonly SessionSnapshot[];
  readonly holds: readonly HoldSnapshot[];
  readonly kept: readonly KeptSnapshot[];
  readonly waits: readonly WaitSnapshot[];
}

/** A hold. */
export interface ReportingHold {
  describe?(): HoldSnapshot | undefined;
}

/** A wait. */
export interface ReportingWait {
  describe?(): WaitSnapshot;
}

/** A lease, as far as reports need it. */
export interface ReportingLease extends SessionSnapshotSource {
  readonly holds: ReadonlySet<ReportingHold>;
  kept(): readonly KeptSnapshot[];
  readonly waits: ReadonlySet<ReportingWait>;
}

type SessionSnapshotSource = Omit<SessionSnapshot, "remainingMs"> & { remainingMs(): number };

export function snapshotOf(leases: Iterable<ReportingLease>): ClusterSnapshot {
  const all = [...leases];
  return Object.freeze({
    sessions: Object.freeze(all.map(sessionOf)),
    holds: Object.freeze(all.flatMap(({ holds }) => described(holds))),
    kept: Object.freeze(all.flatMap((lease) => lease.kept().map(plain))),
    waits: Object.freeze(all.flatMap(({ waits }) => described(waits))),
  });
}

/** The state is read first: that updates it from the clocks, and may end the session. */
export function sessionOf(lease: SessionSnapshotSource): SessionSnapshot {
  const { state, leaseId, owner, ttlSeconds } = lease;
  return plain({ leaseId, owner, state, ttlSeconds, remainingMs: lease.remainingMs() });
}

function described<T extends object>(all: ReadonlySet<{ describe?(): T | undefined }>): readonly T[] {
  return [...all].flatMap((each) => each.describe?.() ?? []).map(plain);
}

/** `util.inspect`, and so `console.log`, calls a method of this name. */
export const INSPECT: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

/** What Node.js passes to that method. */
export type InspectArguments = readonly [
  depth: number,
  options: { stylize?(text: string, style: string): string },
  inspect?: (value: unknown, options: object) => string,
];

/** `Session { leaseId: 41n, owner: 'web-3' }`. Fields that are undefined are left out. */
export function inspected(
  name: string,
  read: () => object,
  [depth, options, inspect]: InspectArguments,
): string {
  if (depth < 0 || inspect === undefined) return options.stylize?.(`[${name}]`, "special") ?? `[${name}]`;
  const known = Object.entries(fieldsOf(read) as Readonly<Record<string, unknown>>).filter(
    ([, value]) => value !== undefined,
  );
  const shown = known.map(([field, value]) => [field, shownAs(value)] as const);
  return `${name} ${inspect(Object.fromEntries(shown), options)}`;
}

/** An object that only inherits from the class has no fields: printing it must not throw. */
function fieldsOf(read: () => object): object {
  try {
    return read();
  } catch {
    return {};
  }
}

function shownAs(value: unknown): unknown {
  if (typeof value === "number") return Math.round(value);
  return typeof value === "string" ? printable(value) : value;
}

/** The inside of a cluster, as far as reports need it. */
export interface ClusterInside {
  readonly contact: Contact;
  readonly closed: boolean;
  readonly standing: HealthOfSession | undefined;
  readonly leases: ReadonlySet<ReportingLease>;
  readonly guardian: GuardianHealth | undefined;
}

/** What a cluster reports about itself, from what this process knows: no method asks etcd. */
export abstract class ReportingCluster {
  abstract readonly hosts: readonly string[];
  /** Private at run time, too: it leads to the credentials. */
  readonly #inside: () => ClusterInside;

  /** `inside` is not called before the constructor of the subclass has returned. */
  constructor(inside: () => ClusterInside) {
    this.#inside = inside;
  }

  /**
   * The sessions, holds, kept keys and waits that this process has with this cluster object, as frozen data. Locks of other processes
   * are not in it. Costs nothing until it is called, and then a few microseconds for each hold and wait.
   */
  snapshot(): ClusterSnapshot {
    return snapshotOf(this.#inside().leases);
  }

  /**
   * Whether this process can rely on etcd now, as far as it knows. A cluster that was not used yet is ok. After a loss, `ok`
   * is false until a call, such as `session()`, has opened the next session.
   */
  health(): ClusterHealth {
    const { leases: sessions, ...inside } = this.#inside();
    return healthOf({ hosts: this.hosts, ...inside, sessions });
  }

  /** @internal */
  [INSPECT](...how: InspectArguments): string {
    const read = (): Record<string, unknown> => {
      const { ok, state, remainingMs } = this.health();
      return { hosts: this.hosts, ok, session: state, remainingMs };
    };
    return inspected("Cluster", read, how);
  }
}
