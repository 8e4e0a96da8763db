// What the server sends to the page. No import of Node.js: the page's modules import this file too.

/** What a select of the page offers. */
export interface Choice {
  readonly name: string;
  readonly text: string;
}

/** Once per connection. */
export interface Hello {
  readonly faults: readonly Choice[];
  readonly mutants: readonly Choice[];
  readonly versions: readonly string[];
  readonly subjects: readonly string[];
}

/** When a run starts. */
export interface Started {
  readonly seed: string;
  readonly mutant: string;
  readonly version: string;
  readonly of: string;
  readonly members: number;
  readonly processes: number;
  readonly lanes: number;
  readonly names: number;
  readonly ttl: number;
  /** The faults that the seed plans. */
  readonly faults: readonly string[];
  readonly calls: number;
}

export interface LinkView {
  readonly state: "up" | "cut" | "black hole" | "requests lost" | "answers lost" | "slow or lossy";
  /** Of the order that has cut it. */
  readonly order?: number | undefined;
}

export interface HoldView {
  readonly lock: string;
  readonly fence: string;
  /** The key still exists in etcd. */
  readonly real: boolean;
}

export interface ProcessView {
  readonly p: string;
  readonly state: "alive" | "paused" | "dead";
  /** What its wall clock is ahead of virtual time. */
  readonly offsetMs: number;
  /** How much faster its clocks run, in percent. */
  readonly driftPercent: number;
  readonly holds: readonly HoldView[];
  readonly waits: readonly string[];
  /** To each member. */
  readonly links: readonly LinkView[];
  /** Of the order that has paused or killed it. */
  readonly order?: number | undefined;
}

/** A message on a link. */
export interface Flight {
  readonly id: number;
  /** The number of the process, and of the member. */
  readonly process: number;
  readonly member: number;
  readonly direction: "request" | "answer";
  readonly kind: "txn" | "read" | "lease" | "keepalive" | "watch" | "event" | "link";
  readonly text: string;
  /** Virtual times in milliseconds. */
  readonly sent: number;
  readonly due: number;
  readonly fate: "flying" | "arrived" | "held" | "lost";
}

export interface EntryView {
  readonly key: string;
  readonly owner: string;
  readonly fence: string;
  readonly lease: string;
  readonly leftMs: number;
  readonly ttlMs: number;
  /** Its owner has been granted the lock. */
  readonly granted: boolean;
}

export interface QueueView {
  readonly name: string;
  readonly entries: readonly EntryView[];
}

/** What was broken by hand and not healed. */
export interface Affliction {
  readonly order: number;
  readonly text: string;
}

export interface Broken {
  readonly label: string;
  readonly text: string;
}

export interface Frame {
  /** Virtual milliseconds, and how many of them pass in a real one. */
  readonly now: number;
  readonly rate: number;
  /** When the next event happens. */
  readonly next: number;
  readonly playing: boolean;
  readonly speed: number;
  readonly skipsQuiet: boolean;
  readonly phase: "work" | "settle" | "over" | "failed";
  readonly problem: string;
  readonly events: number;
  readonly calls: number;
  readonly hash: string;
  readonly members: readonly string[];
  readonly revision: string;
  readonly leases: number;
  readonly watches: number;
  readonly processes: readonly ProcessView[];
  readonly queues: readonly QueueView[];
  readonly flights: readonly Flight[];
  readonly afflictions: readonly Affliction[];
  readonly broken: readonly Broken[];
  /** The whole run was judged, by all invariants. */
  readonly judged: boolean;
  /** What repeats the run: the query of the page's address. */
  readonly query: string;
}

export interface StoryLine {
  readonly ms: number;
  readonly text: string;
  readonly tone: "minor" | "plain" | "good" | "fault" | "bad";
}

/** The search for a seed that notices a broken rule. */
export interface SearchView {
  readonly mutant: string;
  readonly tried: number;
  readonly most: number;
  readonly seed?: string | undefined;
  readonly broken?: string | undefined;
  readonly over: boolean;
}
