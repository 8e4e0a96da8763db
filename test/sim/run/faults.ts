import type { FaultKind } from "../../lab/runner/ground.js";
import type { Random } from "../../lab/runner/random.js";
import { brief, moment } from "../../lab/runner/schedule.js";
import { MEMBER_FAULTS } from "./member-faults.js";
import type { Hindrance, SimCrew } from "./sim-crew.js";
import { TRANSPORT_FAULTS } from "./transport-faults.js";

/** What a fault of a simulated run can reach. */
export interface SimField {
  readonly crew: SimCrew;
  /** Seeded for this fault alone. */
  readonly random: Random;
}

/** What it hit, as in the lab. */
export interface SimHit {
  readonly target: string;
  readonly took?: readonly bigint[];
  heal?(): void;
}

/** One kind of fault: its description is that of the lab, by which the lab's rules judge. */
export interface SimFault extends Omit<FaultKind, "inflict" | "prepare" | "needs"> {
  /** undefined: there is currently nothing to hit. */
  hit(field: SimField): SimHit | undefined;
}

type Choose = (field: SimField) => string | undefined;

const anyWorker: Choose = ({ crew, random }) => random.pick(crew.processes);
const among =
  (which: "holders" | "waiters"): Choose =>
  ({ crew, random }) => {
    const found = crew.seen()[which];
    return found.length > 0 ? random.pick(found) : undefined;
  };

const pause = (who: string, choose: Choose): SimFault => ({
  name: `pause-${who}`,
  effect: "stops-worker",
  weight: 3,
  hit(field) {
    const p = choose(field);
    if (p === undefined) return undefined;
    field.crew.pause(p);
    return { target: p, heal: () => field.crew.resume(p) };
  },
});

/** The machine of a holder sleeps. */
const suspend: SimFault = {
  name: "suspend-holder",
  effect: "stops-worker",
  suspends: true,
  weight: 2,
  hit(field) {
    const p = among("holders")(field);
    if (p === undefined) return undefined;
    field.crew.suspend(p);
    return { target: p, heal: () => field.crew.resume(p) };
  },
};

/** The main thread runs a loop for up to four TTLs. */
const block: SimFault = {
  name: "block-holder",
  effect: "stops-worker",
  blocks: true,
  weight: 6,
  lasts: (random, ttlMs) => random.between(0, random.chance(0.5) ? ttlMs : 4 * ttlMs),
  hit(field) {
    const p = among("holders")(field);
    if (p === undefined) return undefined;
    field.crew.block(p);
    return { target: p, heal: () => field.crew.unblock(p) };
  },
};

const kill = (who: string, choose: Choose): SimFault => ({
  name: `kill-${who}`,
  effect: "kills-worker",
  lasts: (random) => random.between(0, 300),
  hit(field) {
    const p = choose(field);
    if (p === undefined) return undefined;
    field.crew.kill(p);
    return { target: p, heal: () => field.crew.restart(p) };
  },
});

const HOUR_MS = 3_600_000;

const jump = (name: string, hours: number): SimFault => ({
  name,
  effect: "moves-clock",
  lasts: brief,
  hit(field) {
    const p = anyWorker(field);
    if (p === undefined) return undefined;
    field.crew.stepClock(p, hours * HOUR_MS);
    return { target: p, heal: () => field.crew.stepClock(p, -hours * HOUR_MS) };
  },
});

const deleteKey: SimFault = {
  name: "delete-key",
  effect: "takes-place",
  weight: 2,
  lasts: moment,
  hit({ crew, random }) {
    const keys = crew.livingKeys();
    if (keys.length === 0) return undefined;
    const key = random.pick(keys);
    const revision = crew.deleteKey(key);
    return revision === undefined ? undefined : { target: key, took: [revision] };
  },
};

const purge: SimFault = {
  name: "purge",
  effect: "takes-place",
  lasts: moment,
  hit({ crew, random }) {
    const keys = crew.livingKeys();
    if (keys.length === 0) return undefined;
    const key = random.pick(keys);
    const folder = key.slice(0, key.lastIndexOf("/") + 1);
    const revision = crew.purge(folder);
    return revision === undefined ? undefined : { target: folder, took: [revision] };
  },
};

/** A key of a session that waits under another name, and the first key there: in one transaction, or milliseconds apart. */
const deleteKeys: SimFault = {
  name: "delete-keys",
  effect: "takes-place",
  weight: 4,
  lasts: () => APART_MS,
  hit({ crew, random }) {
    const pairs = crew.waitingPairs();
    const several = pairs.length > 0 ? random.pick(pairs) : someKeys(crew.livingKeys(), random);
    if (several.length === 0) return undefined;
    const took: bigint[] = [];
    const taken = (keys: readonly string[]): void => {
      const revision = crew.deleteKeys(keys);
      if (revision !== undefined) took.push(revision);
    };
    const apart = random.chance(0.5);
    taken(apart ? several.slice(0, 1) : several);
    if (apart) crew.later(random.between(0, APART_MS), () => taken(several.slice(1)));
    return { target: several.join(), took };
  },
};
const APART_MS = 20;

const someKeys = (keys: readonly string[], random: Random): readonly string[] =>
  keys.filter(() => random.chance(0.3)).slice(0, 4);

const revokeLease: SimFault = {
  name: "revoke-lease",
  effect: "takes-place",
  lasts: moment,
  hit({ crew, random }) {
    const keys = crew.livingKeys();
    if (keys.length === 0) return undefined;
    const lease = crew.leaseOf(random.pick(keys));
    const revision = crew.revoke(lease);
    return revision === undefined ? undefined : { target: lease, took: [revision] };
  },
};

const compact: SimFault = {
  name: "compact",
  effect: "hinders",
  lasts: moment,
  hit({ crew }) {
    const revision = crew.compact();
    return revision === undefined ? undefined : { target: String(revision) };
  },
};

/** The alarm NOSPACE, raised in one of three ways: by hand, by a write that does not fit, by a write that is executed. */
const quota: SimFault = {
  name: "quota",
  effect: "hinders",
  refuses: "cluster",
  hit({ crew, random }) {
    const { quota } = crew.etcd;
    const how = random.pick(["alarm", "full", "crossed"] as const);
    if (how === "alarm") quota.alarm = true;
    else if (how === "full") quota.fill();
    else quota.cross();
    return { target: how, heal: () => quota.clear() };
  },
};

/** Every member forgets all tokens, as when it was restarted. */
const tokens: SimFault = {
  name: "tokens",
  effect: "hinders",
  refuses: "token",
  sparesLeases: true,
  lasts: moment,
  hit({ crew }) {
    if (!crew.etcd.auth.enabled) return undefined;
    crew.etcd.auth.forgetTokens();
    return { target: "all" };
  },
};

/** All links of one process, or of all. */
const link = (hindrance: Hindrance, more: Partial<SimFault> = {}): SimFault => ({
  name: `link-${hindrance}`,
  effect: "hinders",
  ...more,
  hit({ crew, random }) {
    const processes = random.chance(0.5) ? crew.processes : [random.pick(crew.processes)];
    const heal = crew.hinder(processes, hindrance);
    return { target: processes.join(), heal };
  },
});

export const CLIENT_FAULTS: readonly SimFault[] = [
  pause("worker", anyWorker),
  pause("holder", among("holders")),
  pause("waiter", among("waiters")),
  kill("holder", among("holders")),
  kill("waiter", among("waiters")),
  jump("clock-forth", 1),
  jump("clock-back", -1),
  deleteKey,
  purge,
  revokeLease,
  compact,
  link("cut"),
  link("blackhole"),
  link("lose-requests"),
  link("lose-answers"),
  link("slow"),
  link("lossy"),
];

export const SUSPEND_FAULTS: readonly SimFault[] = [suspend];

/** They delete several keys. */
export const SEVERAL_FAULTS: readonly SimFault[] = [deleteKeys];

/** Of processes whose leases a worker thread renews. */
export const BUSY_FAULTS: readonly SimFault[] = [block];

/** The time of a latch is over: etcd deletes all its keys. */
const endLatch: SimFault = {
  name: "end-latch",
  effect: "takes-place",
  lasts: moment,
  hit({ crew, random }) {
    const latches = crew.latches();
    if (latches.length === 0) return undefined;
    const lease = crew.leaseOf(random.pick(latches));
    const revision = crew.revoke(lease);
    return revision === undefined ? undefined : { target: lease, took: [revision] };
  },
};

/** Of latches and barriers. */
export const MEETING_FAULTS: readonly SimFault[] = [endLatch];

export const ACCESS_FAULTS: readonly SimFault[] = [quota, tokens];

/** New ones come last: what a seed chooses from the others does not change. */
export const SIM_FAULTS: readonly SimFault[] = [
  ...CLIENT_FAULTS,
  ...MEMBER_FAULTS,
  ...ACCESS_FAULTS,
  ...SUSPEND_FAULTS,
  ...TRANSPORT_FAULTS,
  ...BUSY_FAULTS,
  ...SEVERAL_FAULTS,
  ...MEETING_FAULTS,
];
