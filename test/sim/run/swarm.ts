import { type Of, SUBJECTS } from "../../lab/runner/subject.js";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";
import { Random } from "../../../src/testing/memory/random.js";
import {
  ACCESS_FAULTS,
  BUSY_FAULTS,
  CLIENT_FAULTS,
  MEETING_FAULTS,
  SEVERAL_FAULTS,
  SUSPEND_FAULTS,
  type SimFault,
} from "./faults.js";
import { MEMBER_FAULTS } from "./member-faults.js";
import type { SimOptions } from "./sim-run.js";
import { TRANSPORT_FAULTS } from "./transport-faults.js";

const LATER: readonly Of[] = ["reentrant", "leader", "weblock"];
const FIRST = SUBJECTS.filter(
  (of) =>
    of !== "once" &&
    of !== "shards" &&
    of !== "results" &&
    of !== "rendezvous" &&
    of !== "weighted" &&
    of !== "priority" &&
    !LATER.includes(of),
);

const VERSIONS: readonly SimVersion[] = ["3.4", "3.5", "3.6", "3.7"];

/**
 * The setting of a seed: each seed leaves out about half of the faults, because a run with all of them rarely gets far (Groce et
 * al., "Swarm Testing", ISSTA 2012).
 */
export function swarmOf(seed: string): Omit<SimOptions, "build"> {
  const random = new Random(seed).fork("swarm");
  // What was added later has draws of its own, so that the other ones stay.
  const more = new Random(seed).fork("members");
  const members = more.pick([1, 3]);
  const access = new Random(seed).fork("access");
  const isOnce = new Random(seed).fork("once").chance(1 / 6);
  const later = new Random(seed).fork("later");
  const isLater = later.chance(1 / 4);
  const latest = isLater ? later.pick(LATER) : undefined;
  const isWebLock = latest === "weblock";
  const withLater = (of: Of): Of => latest ?? (isOnce ? "once" : of);
  // A Web Lock has no `held`: after a suspend, its signal alone does not tell that it is in doubt.
  const sleeps = new Random(seed).fork("suspend").chance(0.25) && !isWebLock;
  const suspends = sleeps ? SUSPEND_FAULTS : [];
  const several = new Random(seed).fork("several").chance(0.25) ? SEVERAL_FAULTS : [];
  const from = (least: number, most: number): number => least + random.int(most - least + 1);
  const gapMs = random.pick([
    [20, 200],
    [200, 2000],
    [1000, 8000],
  ] as const);
  const setting = {
    seed,
    version: random.pick(VERSIONS),
    of: withLater(random.pick(FIRST)),
    ttlSeconds: random.pick([2, 3, 5, 10]),
    ...{ processes: from(1, 4), lanes: from(1, 4), names: from(1, 4) },
    camp: random.pick([0, 0, 0.2, 1]),
    ...{ calls: 200, seconds: 120, gapMs },
    faults: [
      ...[...someOf(CLIENT_FAULTS, random), ...someOf(ACCESS_FAULTS, access), ...namesOf(suspends)],
      ...namesOf(several),
    ],
    auth: access.chance(0.5),
  };
  // Without holders that claim for seconds, the calls are over before the first tenth of the time is.
  const quiet = setting.camp === 0 ? 0 : undefined;
  if (members === 1) return { ...setting, members, quiet };
  const faults = [...setting.faults, ...someOf(MEMBER_FAULTS, more)];
  return { ...setting, members, quiet, faults, ...(more.chance(0.1) && patient(more)) };
}

/** Calls to etcd after which the work of a short run ends. Its end makes about 30 more. */
const SHORT_REQUESTS = 170;

/**
 * The setting of a seed for a short run of about 200 calls to etcd: no holder claims for seconds, and faults come from the start, ten
 * times as often.
 */
export function shortOf(seed: string): Omit<SimOptions, "build"> {
  const { gapMs, ...rest } = swarmOf(seed);
  const [least, most] = gapMs;
  const early = { quiet: 0, gapMs: [least / 10, most / 10] } as const;
  return { ...rest, camp: 0, requests: SHORT_REQUESTS, seconds: 30, ...early };
}

/** The same run over the client's own transport, with faults of its own. */
export function overTransport(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("transport");
  return { ...setting, transport: true, faults: [...setting.faults, ...someOf(TRANSPORT_FAULTS, random)] };
}

/** The same run with leases that a worker thread renews, and main threads that stand still. */
export function withWorkers(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("workers");
  const maxStallMs = setting.ttlSeconds * 1000 * random.pick([1, 1, 100]);
  return { ...setting, maxStallMs, faults: [...setting.faults, ...namesOf(BUSY_FAULTS)] };
}

/** The same run of sessions with a delay after a crash. In half of them, a guardian revokes what a killed process has. */
export function withCrashes(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("crashes");
  const kills = namesOf(CLIENT_FAULTS).filter((name) => name.startsWith("kill-"));
  return {
    ...setting,
    ...{ releaseDelayMs: random.pick([1000, 4000, 8000]), guardian: random.chance(0.5) },
    // Only a holder that claims for a while is killed while it holds.
    camp: random.pick([0.2, 1]),
    faults: [...new Set([...setting.faults, ...kills])],
  };
}

/** The same run with holders that listen for waiters. Only one that claims for a while is wanted for a while. */
export function withWanted(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("wanted");
  return { ...setting, wanted: true, camp: random.pick([0.2, 1]) };
}

/**
 * The same run with locks whose keys may stay with their sessions: few processes, and names enough that each is asked for by one of them
 * again and again, and by the others now and then.
 */
export function withSticky(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("sticky");
  const of = random.pick(["mutex", "mutex", "rwlock", "semaphore", "lockall", setting.of] as const);
  const [processes, names] = [random.pick([1, 2, 2, 3]), random.pick([1, 2, 4, 8])];
  return { ...setting, sticky: true, of, processes, names };
}

/** The same run of callers that join a queue only if few wait in it. */
export function withBounds(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("bounded");
  const of = random.pick(["mutex", "semaphore"] as const);
  const [processes, lanes, names] = [2 + random.int(4), 1 + random.int(4), random.pick([1, 1, 2])];
  return { ...setting, maxWaiting: 1 + random.int(3), of, processes, lanes, names, sticky: false };
}
/** The same run of callers that take several permits at once. */
export const withWeights = (setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> => ({
  ...setting,
  of: "weighted",
  sticky: false,
});

/** The same run of calls most of which end the older ones that wait. */
export function withNewest(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("newest");
  const [processes, lanes, names] = [2 + random.int(4), 1 + random.int(4), random.pick([1, 1, 2])];
  return { ...setting, newest: true, of: "mutex", processes, lanes, names, sticky: false };
}

/** The same run of calls with priorities. */
export function withPriorities(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("priorities");
  const [processes, lanes, names] = [2 + random.int(4), 1 + random.int(4), random.pick([1, 1, 2])];
  return { ...setting, of: "priority", processes, lanes, names, sticky: false };
}

/** The same run of members that share out shards. */
export function withShards(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("shards");
  return {
    ...{ ...setting, of: "shards", sticky: false, wanted: false, processes: 2 + random.int(4) },
    ...{ names: 1, lanes: random.pick([1, 1, 1, 2]), shards: 4 + random.int(13), calls: Infinity },
    ...{ requests: setting.requests && SHARD_REQUESTS, seconds: Math.max(30, setting.seconds) },
    quiet: 0.05,
  };
}
const SHARD_REQUESTS = 600;

/** The same run of callers of `once` and `share`, which keep results. */
export function withResults(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("results");
  return {
    ...{ ...setting, of: "results", sticky: false, wanted: false, processes: 2 + random.int(4) },
    ...{ names: 1 + random.int(2), lanes: random.pick([1, 2, 4]), calls: Infinity },
    ...{ requests: setting.requests && RESULT_REQUESTS, seconds: Math.max(20, setting.seconds) },
  };
}
const RESULT_REQUESTS = 400;

/** The same run of callers of latches and barriers. */
export function withRendezvous(setting: Omit<SimOptions, "build">): Omit<SimOptions, "build"> {
  const random = new Random(setting.seed).fork("rendezvous");
  const ttlSeconds = Math.min(10, setting.ttlSeconds);
  return {
    ...{
      ...setting,
      of: "rendezvous",
      sticky: false,
      wanted: false,
      processes: 2 + random.int(3),
      ttlSeconds,
    },
    ...{ names: 1 + random.int(4), lanes: 1 + random.int(3), calls: Infinity },
    faults: [...setting.faults, ...someOf(MEETING_FAULTS, random)],
    ...{ requests: setting.requests && RENDEZVOUS_REQUESTS, seconds: Math.max(20, setting.seconds) },
  };
}
const RENDEZVOUS_REQUESTS = 400;

/** Holders with long leases make no calls: only their streams can notice that a member is cut off. */
const patient = (random: Random) => ({
  ...{ ttlSeconds: 120, processes: 6, lanes: 1, names: 12, camp: 1, gapMs: [50, 200] as const },
  faults: ["delete-key", random.pick(["isolate-follower", "isolate-leader"])],
});

const namesOf = (faults: readonly SimFault[]): string[] => faults.map(({ name }) => name);
const someOf = (faults: readonly SimFault[], random: Random): string[] =>
  namesOf(faults).filter(() => random.chance(0.5));
