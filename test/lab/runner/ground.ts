import type { EtcdMember } from "../../support/etcd/etcd.js";
import type { Crew } from "./crew.js";
import type { Effect, Refusal } from "./history.js";
import type { Observer } from "./observer.js";
import type { Random } from "./random.js";

/** One etcd of a ground, wherever it runs. */
export type Member = Pick<EtcdMember, "name" | "endpoint" | "running" | "status" | "gateway"> & {
  /** It stands still with its connections open. */
  pause(): Promise<void> | void;
  resume(): Promise<void> | void;
  kill(): Promise<void>;
  /** After `kill()`: with its data; resolves when it answers. */
  restart(): Promise<void>;
  /** What a request that does not go through `gateway` must bear now; none: nothing. */
  headers?(): Promise<Readonly<Record<string, string>>>;
};

/** Where a run takes place: an etcd of its own, and the ways to it. */
export interface Ground {
  /** Of etcd, such as "3.4.23". */
  readonly version: string;
  /** Reached directly by nemesis and observer, past whatever stands between them and the workers. */
  readonly members: readonly Member[];
  /** What the workers connect to: one address per member, in the same order. */
  readonly hosts: readonly string[];
  /** What they need beside an address. */
  readonly access: Access;
  /** Whoever leads now; the first member where nobody can tell. */
  leader(): Promise<Member>;
  /** How many watches all members have; only where etcd hears of each connection that a client gives up. */
  readonly watches?: () => Promise<number>;
  stop(): Promise<void>;
}

export interface Access {
  /** Where the members ask for a password. */
  readonly auth?: { readonly username: string; readonly password: string };
  /** PEM, where they speak TLS. */
  readonly rootCertificate?: string;
}

/** Of all keys of a run. */
export const LAB_PREFIX = "chaos/";

/** What a ground has only where it is asked for. */
export type Need = "tls" | "auth";

/** What a fault can reach. */
export interface Field<G extends Ground = Ground> {
  readonly ground: G;
  readonly crew: Crew;
  readonly observer: Observer;
  /** Prefix of all locks' keys. */
  readonly places: string;
  readonly ttlMs: number;
  /** Of this very fault: the same for the same seed, whichever other faults there are. */
  readonly random: Random;
}

export interface Inflicted {
  /** Whom it hit: a worker's incarnation, a member's name, a key, a lease. */
  readonly target: string;
  /** The revisions by which it took places, where it did. */
  readonly took?: readonly bigint[];
  heal?(): Promise<void> | void;
}

/** One kind of fault. */
export interface FaultKind<G extends Ground = Ground> {
  readonly name: string;
  readonly effect: Effect;
  /** It hinders calls or watches only: renewals pass, and no lease may be lost by it. */
  readonly sparesLeases?: boolean | ((ttlMs: number) => boolean);
  /** The member that it hits ends the streams that ask for a leader: none stays silent for long. */
  readonly endsStreams?: boolean;
  /** It answers with refusals; without this it delays, loses or breaks what it hinders. */
  readonly refuses?: Refusal;
  /** There is nothing to hit on a ground without it. */
  readonly needs?: Need;
  /** How often it comes, compared with the other kinds; default 1. */
  readonly weight?: number;
  /** Milliseconds until it is healed; default: often below half of a TTL, now and then above the whole. */
  lasts?(random: Random, ttlMs: number): number;
  /** Before the run: makes what takes too long to be made while it lasts. */
  prepare?(ground: G): Promise<unknown>;
  /** undefined: there is nothing to hit now. */
  inflict(field: Field<G>): Promise<Inflicted | undefined> | Inflicted | undefined;
}

/** A sort of ground with the faults that are possible there. */
export interface Tier<G extends Ground = Ground> {
  readonly name: string;
  readonly title: string;
  readonly faults: readonly FaultKind<G>[];
  /** What its ground has, if that is asked for. */
  readonly has?: readonly Need[];
  /** What must be around a process that is to `start` it; none: any process may. Rejects as `start` does. */
  surround?(options: GroundOptions): Promise<Surroundings>;
  /** Rejects with a `NotRunError` where this machine cannot do it. */
  start(options: GroundOptions): Promise<G>;
}

/** For one run, in a process of its own. */
export interface Surroundings {
  /** What a program is started by to be inside; it turns into that program. */
  readonly within: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /** After the run. */
  end(): Promise<void>;
}

export interface GroundOptions {
  /** Such as "3.5"; default: the first etcd that is found. */
  readonly etcdVersion?: string | undefined;
  /** One address stands for all members, as a Kubernetes service does. */
  readonly oneAddress?: boolean | undefined;
  /** Workers speak TLS, to members that each have a certificate of their own. */
  readonly tls?: boolean | undefined;
  /** Members ask for a password, or could: whether they do so at the beginning. */
  readonly auth?: "on" | "off" | undefined;
}

/** This machine cannot run it; the message says why. */
export class NotRunError extends Error {}
