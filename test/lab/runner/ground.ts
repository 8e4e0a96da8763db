import type { EtcdMember } from "../../support/etcd/etcd.js";
import type { Crew } from "./crew.js";
import type { Effect, Refusal } from "./history.js";
import type { Observer } from "./observer.js";
import type { Random } from "./random.js";

/** One etcd member of a ground, wherever it runs. */
export type Member = Pick<EtcdMember, "name" | "endpoint" | "running" | "status" | "gateway"> & {
  /** Stops it with its connections open. */
  pause(): Promise<void> | void;
  resume(): Promise<void> | void;
  kill(): Promise<void>;
  /** Restarts it after `kill()` with its data; resolves when it answers. */
  restart(): Promise<void>;
  /** The headers that a request outside `gateway` needs now; if absent, none. */
  headers?(): Promise<Readonly<Record<string, string>>>;
};

/** Where a run takes place: its own etcd, and the network paths to it. */
export interface Ground {
  /** The version of etcd, such as "3.4.23". */
  readonly version: string;
  /** Nemesis and observer reach them directly, bypassing whatever stands between them and the workers. */
  readonly members: readonly Member[];
  /** What the workers connect to: one address per member, in the same order. */
  readonly hosts: readonly string[];
  /** What the workers need besides an address. */
  readonly access: Access;
  /** The current leader; the first member if the leader cannot be determined. */
  leader(): Promise<Member>;
  /** How many watches all members have; only if etcd notices each connection that a client gives up. */
  readonly watches?: () => Promise<number>;
  stop(): Promise<void>;
}

export interface Access {
  /** Set if the members ask for a password. */
  readonly auth?: { readonly username: string; readonly password: string };
  /** PEM; set if they use TLS. */
  readonly rootCertificate?: string;
}

/** The prefix of all keys of a run. */
export const LAB_PREFIX = "chaos/";

/** What a ground has only on request. */
export type Need = "tls" | "auth";

/** What a fault can reach. */
export interface Field<G extends Ground = Ground> {
  readonly ground: G;
  readonly crew: Crew;
  readonly observer: Observer;
  /** The prefix of all locks' keys. */
  readonly places: string;
  readonly ttlMs: number;
  /** Seeded for this particular fault: the same for the same seed, whichever other faults there are. */
  readonly random: Random;
}

export interface Inflicted {
  /** What it hit: a worker's incarnation, a member's name, a key, or a lease. */
  readonly target: string;
  /** The revisions at which it took places, if it did. */
  readonly took?: readonly bigint[];
  heal?(): Promise<void> | void;
}

/** One kind of fault. */
export interface FaultKind<G extends Ground = Ground> {
  readonly name: string;
  readonly effect: Effect;
  /** It hinders only calls or watches: renewals succeed, and it must not cost a lease. */
  readonly sparesLeases?: boolean | ((ttlMs: number) => boolean);
  /** The member that it hits ends the streams that require a leader: none stays silent for long. */
  readonly endsStreams?: boolean;
  /** It answers with refusals; without this, it delays, loses or breaks what it hinders. */
  readonly refuses?: Refusal;
  /** The machine of a stopped worker is suspended: its monotonic clock stands still meanwhile. */
  readonly suspends?: boolean;
  /** Only the main thread of the worker is stopped. */
  readonly blocks?: boolean;
  /** Without this, a ground has nothing that the fault could hit. */
  readonly needs?: Need;
  /** How often it occurs, relative to the other kinds; default 1. */
  readonly weight?: number;
  /** Milliseconds until it is healed; default: often less than half of a TTL, occasionally more than a whole one. */
  lasts?(random: Random, ttlMs: number): number;
  /** Called before the run: prepares what takes too long to prepare during the fault. */
  prepare?(ground: G): Promise<unknown>;
  /** undefined: there is currently nothing to hit. */
  inflict(field: Field<G>): Promise<Inflicted | undefined> | Inflicted | undefined;
}

/** A kind of ground together with the faults that are possible there. */
export interface Tier<G extends Ground = Ground> {
  readonly name: string;
  readonly title: string;
  readonly faults: readonly FaultKind<G>[];
  /** What its ground has on request. */
  readonly has?: readonly Need[];
  /** The surroundings that a process needs to `start` it; if absent, any process may. Rejects as `start` does. */
  surround?(options: GroundOptions): Promise<Surroundings>;
  /** Rejects with a `NotRunError` if this machine cannot run it. */
  start(options: GroundOptions): Promise<G>;
}

/** For one run in its own process. */
export interface Surroundings {
  /** The command that starts a program inside; it execs that program. */
  readonly within: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** Called after the run. */
  end(): Promise<void>;
}

export interface GroundOptions {
  /** For example "3.5"; default: the first etcd that is found. */
  readonly etcdVersion?: string | undefined;
  /** One address stands for all members, like a Kubernetes service. */
  readonly oneAddress?: boolean | undefined;
  /** Workers use TLS to members with one certificate each. */
  readonly tls?: boolean | undefined;
  /** If set, members have users; the value says whether they ask for passwords at the start. */
  readonly auth?: "on" | "off" | undefined;
}

/** This machine cannot run it; the message says why. */
export class NotRunError extends Error {}
