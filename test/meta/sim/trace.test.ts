import { describe, expect, it } from "vitest";
import { buildOf, mutantOf, sources } from "../../sim/run/build.js";
import type { Compare, Txn } from "../../../src/etcd/port.js";
import { checkAdmission } from "../../sim/trace/admission/check.js";
import { checkTrace } from "../../sim/trace/check.js";
import type { End } from "../../lab/runner/history.js";
import type { TraceEvent } from "../../sim/trace/events.js";
import { runSim } from "../../sim/run/sim-run.js";
import { recordedRun, tracedRun, tracedSetting } from "../../sim/trace/traced-run.js";

const SEEDS = Array.from({ length: 3 }, (_, n) => String(n + 1));

const build = await sources();
/** At least that many steps were checked, and not skipped. */
const more = (than: number) => expect.toSatisfy((count: number) => count > than) as number;

const MUTEX = { of: "mutex" } as const;
const LOCKALL = { of: "lockall" } as const;
const RWLOCK = { of: "rwlock" } as const;
const SEMAPHORE = { of: "semaphore" } as const;
const ELECTION = { of: "election" } as const;

describe("the trace of a simulated run", { timeout: 120_000 }, () => {
  it.each([MUTEX, ELECTION, LOCKALL, RWLOCK, SEMAPHORE])(
    "is recorded without a change of the run: $of",
    async (setting) => {
      const { result } = await recordedRun("1", build, setting);
      const { hash } = await runSim({ ...tracedSetting("1", setting), build });
      expect(result.hash).toBe(hash);
    },
  );
});

describe("the trace of a simulated run of mutexes", { timeout: 120_000 }, () => {
  it.each(SEEDS)("is a path of the model: seed %s", async (seed) => {
    const { steps, rejected } = await tracedRun(seed, build, MUTEX);
    expect(rejected).toBeUndefined();
    expect(steps).toBeGreaterThan(500);
  });

  it.each([
    ["unguarded-release", 1, /sends the unknown of .*: no such transaction/],
    ["try-without-range", 1, /is granted its hold/],
    ["read-before-watch", 1, /is granted its hold/],
    ["header-revision", 2, /is read for a place created at \d+, which never was/],
    ["one-name-in-one-batch", 2, /has two transactions of the queue/],
  ])("is no path of the model if a rule is broken: %s", async (name, seed, said) => {
    const { rejected } = await tracedRun(String(seed), await mutantOf(name), MUTEX);
    expect(rejected).toMatch(said);
  });
});

describe("the trace of a simulated run of elections", { timeout: 120_000 }, () => {
  it.each(["2", "8"])("is a path of the model, with its proclaims: seed %s", async (seed) => {
    const { counts, largest, rejected } = await tracedRun(seed, build, ELECTION);
    expect(rejected).toBeUndefined();
    expect(counts).toMatchObject({ join: more(100), proclaim: more(20), read: more(100), grant: more(50) });
    expect(largest).toBeLessThan(50);
  });

  it.each([
    ["proclaimed-unguarded", 2, /sends the unknown of .*: no such transaction/],
    ["read-before-watch", 1, /is granted its hold/],
  ])("is no path of the model if a rule is broken: %s", async (name, seed, said) => {
    const { rejected } = await tracedRun(String(seed), await mutantOf(name), ELECTION);
    expect(rejected).toMatch(said);
  });

  it.each([
    [
      "the modification revision is not compared",
      { from: '{ kind: "modified at", key, revision: this.#modified },', to: "" },
      /sends the announcement of .*: it changes the value/,
    ],
    [
      "the modification revision is that of the first proclaim for ever",
      { from: "this.#modified = own?.modRevision ?? header.revision;", to: "" },
      /sends the proclaim of .*, guarded by revision \d+: its client knows \d+/,
    ],
  ])("is no path of the model if %s", async (name, patch, said) => {
    const patches = [{ file: "election/leadership.js", ...patch }];
    const broken = await buildOf({ name: name.replaceAll(" ", "-"), patches });
    const { rejected } = await tracedRun("2", broken, ELECTION);
    expect(rejected).toMatch(said);
  });
});

describe("the trace of a run of elections without a request for a put", { timeout: 120_000 }, () => {
  it("is no path of the model: a key that exists is put by a proclaim only", async () => {
    const { events, locks } = await recordedRun("2", build, ELECTION);
    expect(checkTrace(withoutRewrites(events, locks), locks).rejected).toMatch(
      /etcd puts \S+ at revision \d+: the key is there, and no request may write it now/,
    );
  });
});

describe("the trace of a simulated run of lockAll", { timeout: 120_000 }, () => {
  it.each(["3", "9"])("is a path of the model in each of its names: seed %s", async (seed) => {
    const { counts, largest, rejected } = await tracedRun(seed, build, LOCKALL);
    expect(rejected).toBeUndefined();
    expect(counts).toMatchObject({
      "joint try": more(60),
      "joint join": more(50),
      read: more(200),
      grant: more(40),
    });
    expect(largest).toBeLessThan(200);
  });

  it.each([
    ["joined-one-by-one", 6, /sends the join of .*: it belongs to a joint transaction of \d names/],
    ["held-with-the-first", 1, /is granted its hold/],
    ["read-before-watch", 1, /is granted its hold/],
  ])("is no path of the model if a rule is broken: %s", async (name, seed, said) => {
    const { rejected } = await tracedRun(String(seed), await mutantOf(name), LOCKALL);
    expect(rejected).toMatch(said);
  });

  describe("with one joint transaction", () => {
    const change = (events: readonly TraceEvent[]): number =>
      events.findIndex((each) => each.is === "change" && each.change.events.length > 1);
    const answer = (events: readonly TraceEvent[], from: number): number =>
      events.findIndex((each, i) => i > from && each.is === "txns answered" && each.answers[0]!.succeeded);

    it("is no path if one of its keys is not put", async () => {
      const { events, locks } = await recordedRun("1", build, LOCKALL);
      const i = change(events);
      const whole = events[i] as Extract<TraceEvent, { is: "change" }>;
      const part = { ...whole, change: { ...whole.change, events: whole.change.events.slice(0, 1) } };
      expect(checkTrace(events.with(i, part), locks).rejected).toMatch(
        /etcd puts (\S+) at revision \d+ without \S+: one transaction puts both, or none/,
      );
    });

    it("is no path if it is refused, and the queue of no name is a reason", async () => {
      const { events, locks } = await recordedRun("1", build, LOCKALL);
      const i = answer(events, change(events));
      expect(checkTrace(events.with(i, refused(events[i]!)), locks).rejected).toMatch(
        /refused, with those of other names: no name is a reason/,
      );
    });
  });
});

describe("the trace of a simulated run of readers and writers", { timeout: 120_000 }, () => {
  it.each(["2", "3"])("admits each grant, as far as its client can know: seed %s", async (seed) => {
    const { counts, rejected } = await tracedRun(seed, build, RWLOCK);
    expect(rejected).toBeUndefined();
    expect(counts).toMatchObject({ join: more(150), try: more(10), read: more(100), grant: more(60) });
  });

  it.each([
    [
      "reader-ignores-writers",
      /is granted its hold: etcd has admitted it at no time: \S+\/write\/\S+ .* is before it/,
    ],
    ["reader-looks-on-one-side", /is granted its hold: etcd has admitted it at no time/],
    [
      "writer-ignores-readers",
      /is granted its hold: etcd has admitted it at no time: \S+\/read\/\S+ .* is before it/,
    ],
    ["read-before-watch", /etcd admits it from revision \d+ on, which its client cannot know/],
    ["unguarded-release", /the unknown of \S+ is sent: no such transaction/],
  ])("is refused if a rule is broken: %s", async (name, said) => {
    const { rejected } = await tracedRun("1", await mutantOf(name), RWLOCK);
    expect(rejected).toMatch(said);
  });
});

describe("the trace of a simulated run of permits", { timeout: 120_000 }, () => {
  it.each(["2", "3"])("admits each grant, as far as its client can know: seed %s", async (seed) => {
    const { counts, rejected } = await tracedRun(seed, build, SEMAPHORE);
    expect(rejected).toBeUndefined();
    expect(counts).toMatchObject({
      join: more(150),
      announcement: more(60),
      read: more(100),
      grant: more(80),
    });
  });

  it.each([
    ["one-permit-too-many", /the announcement of \S+ is sent: etcd has admitted it at no time/],
    ["own-number-rules", /is granted its hold: etcd has admitted it at no time/],
  ])("is refused if a rule is broken: %s", async (name, said) => {
    const { rejected } = await tracedRun("1", await mutantOf(name), SEMAPHORE);
    expect(rejected).toMatch(said);
  });

  it("is refused if a key is deleted that no client asked to delete", async () => {
    const { events, locks } = await recordedRun("2", build, SEMAPHORE);
    const i = events.findIndex((each) => each.is === "txns" && each.txns[0]!.success[0]?.kind === "delete");
    expect(checkAdmission(events.toSpliced(i, 1), locks).rejected).toMatch(
      /etcd deletes \S+ at revision \d+: no request may delete the place created at \d+/,
    );
  });

  it("is refused if a key is put again that no client announces", async () => {
    const { events, locks } = await recordedRun("2", build, SEMAPHORE);
    const others = withoutRewrites(events, locks);
    expect(checkAdmission(others, locks).rejected).toMatch(
      /etcd puts \S+ at revision \d+: no request may put it now/,
    );
  });
});

/** Without each request that puts the key which is put again first. */
function withoutRewrites(events: readonly TraceEvent[], locks: string): readonly TraceEvent[] {
  const again = events
    .flatMap((each) => (each.is === "change" ? each.change.events : []))
    .map(({ kv }) => kv)
    .find(
      ({ key, createRevision, modRevision }) =>
        key.toString().startsWith(locks) && createRevision > 0n && modRevision > createRevision,
    )!;
  const rewrites = ({ compare: [first], success: [put] }: Txn): boolean =>
    put?.kind === "put" &&
    first?.kind === "created at" &&
    String(first.key) === again.key.toString() &&
    first.revision === again.createRevision;
  return events.filter((each) => each.is !== "txns" || !each.txns.some(rewrites));
}

function refused(event: TraceEvent): TraceEvent {
  if (event.is !== "txns answered") throw new Error(`expected an answer, got "${event.is}"`);
  const answers = event.answers.map(({ header, ranges }) => {
    const none = ranges.map(() => ({ kvs: [], more: false, count: 0 }));
    return { succeeded: false, header, ranges: none };
  });
  return { ...event, answers };
}

describe("a seed whose trace was once rejected by an error of the check", { timeout: 120_000 }, () => {
  it.each([
    ["a try that is sent again reads the key that the first one has put", "130", RWLOCK],
    ["the same, after a lost answer", "587", RWLOCK],
    ["the key of a permit is deleted before the answer of the read arrives", "426", SEMAPHORE],
    ["a waiter uses either of two watches on its key again", "179", ELECTION],
    ["a waiter uses either of two watches on its predecessor again", "524", ELECTION],
    ["a waiter that joins anew for the second time uses either of two watches again", "562", MUTEX],
    ["a leader proclaims after its key is gone, and before it is notified", "480", ELECTION],
    ["the same, and the request is sent again", "321", ELECTION],
    ["an administrator revokes the lease of a session that is closing", "334", LOCKALL],
  ])("is a path of the model: %s", async (_, seed, setting) => {
    expect((await tracedRun(seed, build, setting)).rejected).toBeUndefined();
  });

  it.each([
    ["was notified that its key is gone", "321", "deleted"],
    ["has resigned", "2", "released"],
  ] as const)("is no path if a leader proclaims after it %s", async (_, seed, reason) => {
    const { events, locks } = await recordedRun(seed, build, ELECTION);
    const [end, late] = lateProclaim(events, reason)!;
    expect(checkTrace(events.toSpliced(end + 1, 0, late), locks).rejected).toMatch(
      /sends the proclaim of \S+, created at \d+$/m,
    );
  });
});

describe("the trace of a simulated run over the client's own transport", { timeout: 120_000 }, () => {
  it.each([
    ["mutex", "8"],
    ["rwlock", "9"],
    ["election", "12"],
  ] as const)("is a path of the model, or is admitted: %s, seed %s", async (of, seed) => {
    const { steps, rejected } = await tracedRun(seed, build, { of, transport: true });
    expect(rejected).toBeUndefined();
    expect(steps).toBeGreaterThan(500);
  });

  it("is no path of the model if a rule is broken", async () => {
    const setting = { of: "mutex", transport: true } as const;
    const { rejected } = await tracedRun("1", await mutantOf("read-before-watch"), setting);
    expect(rejected).toMatch(/is granted its hold/);
  });
});

/** The first end of a leader's hold for that reason, and one more proclaim of that leader. */
function lateProclaim(events: readonly TraceEvent[], reason: End["reason"]) {
  for (const [i, each] of events.entries()) {
    if (each.is !== "step" || each.step.k !== "end" || each.step.reason !== reason) continue;
    const proclaim = proclaimOf(each.step, events.slice(0, i));
    if (proclaim) return [i, proclaim] as const;
  }
  return undefined;
}

/** The last proclaim of a leader, guarded by the revision that the leader knows after the answer. */
function proclaimOf({ token }: End, events: readonly TraceEvent[]): TraceEvent | undefined {
  const isGuarded = ({ compare: [first, second] }: Txn): boolean =>
    first?.kind === "created at" && first.revision === token && second?.kind === "modified at";
  const last = events.findLast((it) => it.is === "txns" && it.txns.length === 1 && isGuarded(it.txns[0]!));
  if (last?.is !== "txns") return undefined;
  const answer = events.find((it) => it.is === "txns answered" && it.call === last.call);
  if (answer?.is !== "txns answered" || !answer.answers[0]!.succeeded) return last;
  const [txn] = last.txns;
  const [created, modified] = txn!.compare as [Compare, Compare & { kind: "modified at" }];
  const { revision } = answer.answers[0]!.header;
  return { ...last, txns: [{ ...txn!, compare: [created, { ...modified, revision }] }] };
}
