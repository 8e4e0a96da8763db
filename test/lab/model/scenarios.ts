/** How often each accident may happen. These bounds, and the rounds of the callers, make a scenario finite. */
export interface Accidents {
  /** A caller stops waiting. */
  readonly aborts: number;
  /** A transaction is executed, but its answer never arrives. */
  readonly lostAnswers: number;
  /** A client gives up on a transaction in transit, which may arrive much later. */
  readonly lateRequests: number;
  /** A proxy sends a transaction twice, and the client gets one of the answers. */
  readonly repeats: number;
  /** Renewals do not arrive: a session is lost. */
  readonly losses: number;
  /** A process stops while its lease expires. */
  readonly pauses: number;
  /** A watch stream breaks, and moves to the other member. */
  readonly moves: number;
  /** A key is deleted by hand. */
  readonly deletions: number;
  /** All keys of a queue are deleted by hand, in one revision. */
  readonly purges: number;
  /** A lease is revoked by hand. */
  readonly revokes: number;
  /** A process ends while it holds, and the next session of its lease adopts that. */
  readonly adoptions: number;
  /** A holder writes to the protected resource. */
  readonly writes: number;
}

export interface CallerSetup {
  readonly session: number;
  readonly name: string;
  /** How often it locks, one time after the other. */
  readonly rounds: number;
  /** `tryLock()` instead of `lock()`. */
  readonly tries?: boolean;
  /** A refused try joins for a while behind the key in the way, if that may stay with its session. */
  readonly asks?: boolean;
  /** `lockAll()` with this name: it tries, then joins with the same key, and waits behind its own session as behind others. */
  readonly all?: boolean;
  readonly writes?: boolean;
  /** It releases although its write has not been answered. */
  readonly impatient?: boolean;
  /** Its key may stay with the session after a release. */
  readonly sticky?: boolean;
  /** `local`: so many callers of its process take the lock before the others that are known to wait. */
  readonly passes?: number;
  /** `readLock()`. */
  readonly reads?: boolean;
  /** `lock({ supersede: true })`. */
  readonly supersedes?: boolean;
  /** With `priorities`: the lowest one is next. No rank ever changes. */
  readonly rank?: number;
  /** While it leads, it may hand over to the first movable place of this session. */
  readonly transfers?: number;
  /** A candidate that hands over at its turn if a movable one with a higher priority waits, unless a leader has named it. */
  readonly priority?: number;
  /** A candidate that may be named, and be moved behind others: it joins anew then. */
  readonly movable?: boolean;
  /** A client, such as Go's, that doesn't look whether its own key is there. */
  readonly foreign?: boolean;
  /** `writeLock()`, and while it holds it may become a reader. */
  readonly downgrades?: boolean;
}

export interface SessionSetup {
  /** The member that serves its watches. */
  readonly member: "leading" | "lagging";
  /** Another session's lease: two processes share one lease. */
  readonly lease?: number;
  /** Another session, whose lease this one adopts when that one's process has ended. It does nothing before. */
  readonly adopts?: number;
  /** With `releaseDelayMs`. etcd gives two keys of one create revision in any order: which one comes first here. */
  readonly delays?: "entry first" | "delay key first";
}

export interface Scenario {
  readonly sessions: readonly SessionSetup[];
  readonly callers: readonly CallerSetup[];
  readonly accidents: Accidents;
  /** One member lags. */
  readonly lags?: boolean;
  /** Holds last long enough for a watch on the holder's own key. */
  readonly longHolds?: boolean;
  /** The callers first join in their order, and accidents come only while a transaction that hands over is on its way. */
  readonly inTransfers?: boolean;
  /** All sessions belong to one process, whose transactions may share a request. */
  readonly batches?: boolean;
  /** Calls of a Mutex with `priorities`: see `priorities/`. */
  readonly priorities?: boolean;
  /** Calls with `supersede`, and plain ones: see `superseding/`. */
  readonly superseding?: boolean;
  /** With priorities: at first, somebody else has a place of this rank, and gives up at some time. */
  readonly firstRank?: number;
}

const NONE: Accidents = {
  aborts: 0,
  lostAnswers: 0,
  lateRequests: 0,
  repeats: 0,
  losses: 0,
  pauses: 0,
  moves: 0,
  deletions: 0,
  purges: 0,
  revokes: 0,
  adoptions: 0,
  writes: 0,
};

type More = Partial<
  Pick<
    Scenario,
    "sessions" | "lags" | "longHolds" | "inTransfers" | "batches" | "priorities" | "firstRank" | "superseding"
  >
> &
  Partial<Accidents>;

/** Sessions A, B, C: as many as the callers name, all on the leading member unless stated otherwise. */
function scenario(callers: readonly CallerSetup[], more: More = {}): Scenario {
  const {
    sessions,
    lags,
    longHolds,
    inTransfers,
    batches,
    priorities,
    firstRank,
    superseding,
    ...accidents
  } = more;
  const last = Math.max(...callers.map(({ session }) => session));
  return {
    sessions: sessions ?? Array.from({ length: last + 1 }, () => ({ member: "leading" })),
    callers,
    accidents: { ...NONE, ...accidents },
    ...(lags && { lags }),
    ...(longHolds && { longHolds }),
    ...(inTransfers && { inTransfers }),
    ...(batches && { batches }),
    ...(priorities && { priorities }),
    ...(firstRank !== undefined && { firstRank }),
    ...(superseding && { superseding }),
  };
}

/** Calls with priorities: the one with the lowest rank is next. */
const ranked = (callers: readonly CallerSetup[], more: More = {}): Scenario =>
  scenario(callers, { ...more, priorities: true });

/** Calls of which the newest wins. */
const newest = (callers: readonly CallerSetup[], more: More = {}): Scenario =>
  scenario(callers, { ...more, superseding: true });

const caller = (session: number, more: Partial<CallerSetup> = {}): CallerSetup => ({
  session,
  name: "jobs",
  rounds: 1,
  ...more,
});

const A = caller(0);
const B = caller(1);
const C = caller(2);
const twice = { rounds: 2 };
const tries = { tries: true };
const asks = { ...tries, asks: true };
const all = { all: true };
const writes = { writes: true };
const sticky = { sticky: true };
const STICKY = caller(0, sticky);
const STICKY_TWICE = caller(0, { ...sticky, ...twice });
const PASSES = caller(0, { ...sticky, passes: 1 });
const PASSES_TWICE = caller(0, { ...sticky, ...twice, passes: 1 });
const reads = { reads: true };
const downgrades = { downgrades: true };
const DOWNGRADES = caller(0, downgrades);
const READS = caller(1, reads);
const rank = (session: number, n: number, more: Partial<CallerSetup> = {}): CallerSetup =>
  caller(session, { rank: n, ...more });
const newer = (session: number): CallerSetup => caller(session, { supersedes: true });
const NEWEST = newer(0);
const movable = { movable: true };
const foreign = { foreign: true };
const transfersTo = (session: number): Partial<CallerSetup> => ({ ...movable, transfers: session });
const TRANSFERS = caller(0, transfersTo(2));
const B_MOVABLE = caller(1, movable);
const C_MOVABLE = caller(2, movable);
const TO_C = [TRANSFERS, B_MOVABLE, C_MOVABLE];
const TO_B = caller(0, transfersTo(1));
const BEFORE_B = [TO_B, caller(0, movable), B_MOVABLE];
const inTransfers = true;
/** The last one has the highest priority. */
const prioritized = (...callers: readonly CallerSetup[]): CallerSetup[] =>
  callers.map((each, n) => ({ ...each, priority: n === callers.length - 1 ? 1 : 0 }));
const A_TWICE = caller(0, twice);
const B_TWICE = caller(1, twice);

const LEADING: SessionSetup = { member: "leading" };
const DELAYED: SessionSetup = { ...LEADING, delays: "entry first" };
const DELAYED_OTHERWISE: SessionSetup = { ...LEADING, delays: "delay key first" };
const LAGS: SessionSetup = { member: "lagging" };
const ADOPTED: readonly SessionSetup[] = [LEADING, { ...LEADING, adopts: 0 }, LEADING];

/** Each is explored completely. */
export const SCENARIOS = {
  turns: scenario([A_TWICE, B_TWICE]),
  "three clients": scenario([A, B, C]),
  aborts: scenario([A_TWICE, B], { aborts: 1, lostAnswers: 1 }),
  "late requests": scenario([caller(0, { rounds: 3 })], { lateRequests: 2 }),
  "late requests, aborts": scenario([A, B], { lateRequests: 1, aborts: 1 }),
  repeats: scenario([A_TWICE], { repeats: 2 }),
  "repeats, waits": scenario([A, B], { repeats: 1 }),
  "repeats, late requests": scenario([caller(0, { rounds: 2 })], { repeats: 1, lateRequests: 1, aborts: 1 }),
  "repeated tries": scenario([caller(0, { ...tries, ...twice }), B], { repeats: 1, aborts: 1 }),
  "siblings, repeats": scenario([A, A], { repeats: 1, aborts: 1 }),
  tries: scenario([caller(0, { ...tries, ...twice }), B], { lateRequests: 1, aborts: 1 }),
  "lockAll, late requests": scenario([caller(0, all), B], { lateRequests: 1, aborts: 1 }),
  "lockAll, siblings": scenario([caller(0, all), A], { aborts: 1, lostAnswers: 1 }),
  losses: scenario([A, B_TWICE], { losses: 1, lostAnswers: 1 }),
  pauses: scenario([caller(0, writes), caller(1, writes)], { pauses: 1, writes: 2 }),
  deletions: scenario([A_TWICE, B], { deletions: 1, longHolds: true }),
  purges: scenario([A, B], { purges: 1, longHolds: true }),
  "purges, lagging": scenario([A, B], {
    sessions: [{ member: "leading" }, { member: "lagging" }],
    lags: true,
    purges: 1,
    longHolds: true,
  }),
  revokes: scenario([A, B], { revokes: 1, longHolds: true }),
  "moved streams": scenario([A, B], {
    sessions: [{ member: "leading" }, { member: "lagging" }],
    lags: true,
    moves: 1,
  }),
  "a moved holder": scenario([A_TWICE], { lags: true, moves: 1, deletions: 1, longHolds: true }),
  siblings: scenario([A, A, B], { aborts: 1 }),
  "three siblings": scenario([A, A, A], { aborts: 1 }),
  "siblings, late requests": scenario([A, A], { lateRequests: 2 }),
  "siblings, lost answers": scenario([A, A], { lostAnswers: 2, aborts: 1 }),
  "siblings, deletions": scenario([A, A, A], { deletions: 1, longHolds: true }),
  "one lease twice": scenario([A, B], {
    sessions: [{ member: "leading" }, { member: "leading", lease: 0 }],
    aborts: 1,
    lostAnswers: 1,
  }),
  batches: scenario(
    [caller(0, tries), caller(0, { name: "mail" }), caller(1, { ...tries, name: "jobs/night" })],
    {
      batches: true,
    },
  ),
  "batches, late requests": scenario([A, caller(0, { name: "mail" })], { batches: true, lateRequests: 1 }),
  "delays, losses": scenario([A, B], { sessions: [DELAYED, LEADING], losses: 1, pauses: 1 }),
  "delays, losses, otherwise": scenario([A, B], {
    sessions: [DELAYED_OTHERWISE, DELAYED],
    losses: 1,
    pauses: 1,
  }),
  "delays, revokes": scenario([A, B], { sessions: [DELAYED, LEADING], revokes: 1, longHolds: true }),
  "delays, three clients": scenario([A, B, C], {
    sessions: [DELAYED_OTHERWISE, LEADING, LEADING],
  }),
  "delays, turns": scenario([A_TWICE, B], { sessions: [DELAYED, DELAYED_OTHERWISE], aborts: 1 }),
  "delays, siblings": scenario([A, A, B], { sessions: [DELAYED_OTHERWISE, LEADING], aborts: 1 }),
  "delays, deletions": scenario([A, B], { sessions: [DELAYED, LEADING], deletions: 1, longHolds: true }),
  "delays, late requests": scenario([A_TWICE], { sessions: [DELAYED], lateRequests: 1 }),
  "delays, lockAll": scenario([caller(0, all), B], { sessions: [DELAYED, LEADING], pauses: 1 }),
  "batches, waits": scenario([A, caller(0, { name: "mail" }), B], { batches: true }),
  sticky: scenario([caller(0, { ...sticky, rounds: 3 }), B], { aborts: 1 }),
  "sticky, two clients": scenario([STICKY_TWICE, caller(1, { ...sticky, ...twice })]),
  "sticky, siblings": scenario([STICKY, STICKY, B], { aborts: 1 }),
  "sticky, a plain sibling": scenario([STICKY_TWICE, A], { aborts: 1 }),
  "sticky, moved streams": scenario([STICKY, B], {
    sessions: [{ member: "lagging" }, { member: "leading" }],
    lags: true,
    moves: 1,
  }),
  "sticky, deletions": scenario([STICKY_TWICE, B], { deletions: 1, longHolds: true }),
  "sticky, losses": scenario([STICKY_TWICE, B], { losses: 1, lostAnswers: 1 }),
  "sticky, pauses": scenario([caller(0, { ...sticky, ...twice, ...writes }), caller(1, writes)], {
    pauses: 1,
    writes: 2,
  }),
  "sticky, impatient writes": scenario(
    [caller(0, { ...sticky, ...writes, impatient: true }), caller(0, { ...sticky, ...writes })],
    {
      writes: 2,
    },
  ),
  "sticky, late requests": scenario([STICKY_TWICE, B], { lateRequests: 1 }),
  "sticky, repeats": scenario([STICKY_TWICE, B], { repeats: 1 }),
  "sticky, passes": scenario([PASSES_TWICE, PASSES, B]),
  "sticky, a sibling behind, deletions": scenario([STICKY, A, B], { deletions: 1, longHolds: true }),
  "sticky, passes, losses": scenario([PASSES, PASSES, B], { losses: 1 }),
  "sticky, passes, moved streams": scenario([PASSES, PASSES, B], { moves: 1 }),
  "sticky, asked by a try": scenario([STICKY_TWICE, caller(1, asks)], { lostAnswers: 1 }),
  "sticky, asked by a try, a sibling": scenario([STICKY, caller(1, asks), B]),
  "sticky, asked by a try, late requests": scenario([STICKY, caller(1, asks)], { lateRequests: 1 }),
  "sticky, asked by a try, deletions": scenario([STICKY, caller(1, asks)], { deletions: 1, longHolds: true }),
  "sticky, delays": scenario([STICKY, B], { sessions: [DELAYED, LEADING], revokes: 1 }),
  readers: scenario([caller(0, reads), B, caller(2, reads)]),
  downgrades: scenario([DOWNGRADES, READS], { aborts: 1, lostAnswers: 1 }),
  "downgrades, twice": scenario([caller(0, { ...downgrades, ...twice }), caller(1, { ...reads, ...twice })]),
  "downgrades, two writers": scenario([DOWNGRADES, caller(1, downgrades)], { lostAnswers: 1, aborts: 1 }),
  "downgrades, a writer behind": scenario([DOWNGRADES, B, caller(2, reads)]),
  "downgrades, siblings": scenario([DOWNGRADES, caller(0, reads), B]),
  "downgrades, a writing sibling": scenario([DOWNGRADES, A, READS]),
  "downgrades, tries": scenario([DOWNGRADES, caller(1, { ...reads, ...tries, ...twice })], {
    lostAnswers: 1,
  }),
  "downgrades, late requests": scenario([DOWNGRADES, READS], { lateRequests: 1 }),
  "downgrades, repeats": scenario([DOWNGRADES, READS], { repeats: 1 }),
  "downgrades, deletions": scenario([DOWNGRADES, READS], { deletions: 1, longHolds: true }),
  "downgrades, purges": scenario([DOWNGRADES, READS], { purges: 1, longHolds: true }),
  "downgrades, losses": scenario([DOWNGRADES, READS, B], { losses: 1 }),
  "downgrades, pauses": scenario([DOWNGRADES, READS], { pauses: 1 }),
  "downgrades, moved streams": scenario([DOWNGRADES, READS], {
    sessions: [{ member: "leading" }, { member: "lagging" }],
    lags: true,
    moves: 1,
  }),
  "downgrades, delays": scenario([DOWNGRADES, READS], { sessions: [DELAYED, DELAYED_OTHERWISE], losses: 1 }),
  "downgrades, delays, a writer behind": scenario([DOWNGRADES, B], {
    sessions: [DELAYED, LEADING],
    losses: 1,
  }),
  adoptions: scenario([A, B, C], { sessions: ADOPTED, adoptions: 1 }),
  "adoptions, downgrades": scenario([DOWNGRADES, caller(1, downgrades), caller(2, reads)], {
    sessions: ADOPTED,
    adoptions: 1,
  }),
  "adoptions, downgrades, lost answers": scenario([A, caller(1, downgrades), caller(2, reads)], {
    sessions: ADOPTED,
    adoptions: 1,
    lostAnswers: 1,
  }),
  "adoptions, downgrades, late requests": scenario([A, caller(1, downgrades), caller(2, reads)], {
    sessions: ADOPTED,
    adoptions: 1,
    lateRequests: 1,
  }),
  "adoptions, downgrades, a writer behind": scenario([DOWNGRADES, caller(1, downgrades), C], {
    sessions: ADOPTED,
    adoptions: 1,
    aborts: 1,
  }),
  priorities: ranked([rank(0, 1, twice), rank(1, 0, twice)]),
  "priorities, three clients": ranked([rank(0, 2), rank(1, 1), rank(2, 0)]),
  "priorities, equal ranks": ranked([rank(0, 0), rank(1, 0), rank(1, 0)]),
  "priorities, siblings": ranked([rank(0, 1), rank(0, 0), rank(1, 1)], { aborts: 1 }),
  "priorities, aborts": ranked([rank(0, 2), rank(1, 0)], { firstRank: 1, aborts: 1, lostAnswers: 1 }),
  "priorities, lost answers": ranked([rank(0, 1, twice), rank(1, 0)], { lostAnswers: 2, aborts: 1 }),
  "priorities, late requests": ranked([rank(0, 1), rank(1, 0)], { lateRequests: 2 }),
  "priorities, late requests, aborts": ranked([rank(0, 1), rank(1, 0)], { lateRequests: 1, aborts: 1 }),
  "priorities, losses": ranked([rank(0, 1), rank(1, 0, twice)], { losses: 1, lostAnswers: 1 }),
  "priorities, pauses": ranked([rank(0, 1), rank(1, 0)], { pauses: 1 }),
  "priorities, deletions": ranked([rank(0, 1), rank(1, 0, twice)], { deletions: 1 }),
  "priorities, moved streams": ranked([rank(0, 1), rank(1, 0)], {
    sessions: [{ member: "leading" }, { member: "lagging" }],
    lags: true,
    moves: 1,
  }),
  "priorities, delays": ranked([rank(0, 1), rank(1, 0)], {
    sessions: [DELAYED, LEADING],
    losses: 1,
    pauses: 1,
  }),
  supersede: newest([NEWEST, newer(1), newer(2)]),
  "supersede, a plain one": newest([A, newer(1), newer(2)], { aborts: 1 }),
  "supersede, lost answers": newest([A, newer(1), newer(2)], { lostAnswers: 1 }),
  "supersede, late requests": newest([A, newer(1), newer(2)], { lateRequests: 1 }),
  "supersede, deletions": newest([A, newer(1), newer(2)], { deletions: 1 }),
  "supersede, losses": newest([A, newer(1), newer(2)], { losses: 1 }),
  transfers: scenario(TO_C),
  "transfers, aborts": scenario(TO_C, { inTransfers, aborts: 1 }),
  "transfers, lost answers": scenario(TO_C, { inTransfers, lostAnswers: 1 }),
  "transfers, late requests": scenario(TO_C, { inTransfers, lateRequests: 1 }),
  "transfers, repeats": scenario(BEFORE_B, { inTransfers, repeats: 1 }),
  "transfers, losses": scenario(TO_C, { inTransfers, losses: 1 }),
  "transfers, pauses": scenario(BEFORE_B, { inTransfers, pauses: 1 }),
  "transfers, deletions": scenario(BEFORE_B, { inTransfers, deletions: 1, longHolds: true }),
  "transfers, moved streams": scenario([TO_B, B_MOVABLE], {
    sessions: [LEADING, LAGS],
    lags: true,
    inTransfers,
    moves: 2,
    lostAnswers: 1,
  }),
  "transfers, lagging": scenario(TO_C, { sessions: [LEADING, LAGS, LEADING], lags: true, inTransfers }),
  "transfers, foreign": scenario([TRANSFERS, caller(1, foreign), C_MOVABLE]),
  "transfers, siblings": scenario(BEFORE_B, {
    inTransfers,
    aborts: 1,
    lostAnswers: 1,
  }),
  "transfers, to a sibling": scenario([caller(0, transfersTo(0)), B_MOVABLE, caller(0, movable)], {
    inTransfers,
    aborts: 1,
    lostAnswers: 1,
  }),
  "transfers, delays": scenario(TO_C, { sessions: [DELAYED, DELAYED_OTHERWISE, DELAYED], inTransfers }),
  "transfers, back": scenario(
    [caller(0, { ...transfersTo(1), ...twice }), caller(1, { ...transfersTo(0), ...twice })],
    { inTransfers, lostAnswers: 1, aborts: 1 },
  ),
  "transfers, priorities": scenario(prioritized(TO_B, B_MOVABLE, C_MOVABLE), {
    inTransfers,
    lostAnswers: 1,
  }),
  "transfers, late copies": scenario([caller(0, { ...transfersTo(1), ...twice }), B_MOVABLE], {
    inTransfers,
    repeats: 1,
    lateRequests: 1,
  }),
} satisfies Record<string, Scenario>;

export type ScenarioName = keyof typeof SCENARIOS;

export const SCENARIO_NAMES = Object.keys(SCENARIOS) as ScenarioName[];
