import { describe, expect, test } from "vitest";
import type { Change, Entry, History } from "../../../examples/demo/history.js";
import { judge } from "../../../examples/demo/verdict.js";

const LOCK = "demo/lock";
const COUNTER = "demo/counter";

/** Times in the stories below are in milliseconds; the history uses microseconds. */
const said = (ms: number, p: string, k: string, more: Record<string, unknown> = {}): Entry => ({
  t: ms * 1000,
  p,
  k,
  ...more,
});
const joined = (revision: number, owner: string): Change => ({
  t: 0,
  type: "PUT",
  key: `${LOCK}/${owner}`,
  revision,
  create: revision,
  value: JSON.stringify({ owner }),
});
const left = (revision: number, owner: string): Change => ({
  ...joined(revision, owner),
  type: "DELETE",
  create: 0,
});
const counted = (revision: number, n: number, fence: number, by: string): Change => ({
  t: 0,
  type: "PUT",
  key: COUNTER,
  revision,
  create: revision,
  value: JSON.stringify({ n, fence, by, op: `${by}-${fence}` }),
});

/** One hold from 0 to 100 ms after `from`, with its write answered by `outcome`. */
function hold(
  from: number,
  p: string,
  { fence, n, outcome }: { fence: number; n: number; outcome: string },
): Entry[] {
  const op = `${p}-${fence}`;
  return [
    said(from, p, "held", { fence, key: `${LOCK}/${p}`, held: true }),
    said(from + 1, p, "working", { fence, held: true }),
    said(from + 50, p, "claim", { fence, held: true }),
    said(from + 90, p, "write", { fence, n, op }),
    said(from + 95, p, "wrote", { fence, n, op, invoked: (from + 90) * 1000, outcome }),
    said(from + 100, p, "done", { fence, held: outcome === "accepted" }),
  ];
}

/** A counts; B is frozen in the middle of its work; C counts; B is thawed and its write refused. */
function story(): History {
  const [bHeld, bWorking, , ...bEnd] = hold(110, "B", { fence: 11, n: 2, outcome: "refused" });
  const frozen = { target: "B", fence: 11, fault: "pause-holder" };
  const entries = [
    ...hold(0, "A", { fence: 10, n: 1, outcome: "accepted" }),
    bHeld!,
    bWorking!,
    said(120, "nemesis", "pause", frozen),
    said(120, "nemesis", "fault", frozen),
    ...hold(2200, "C", { fence: 12, n: 2, outcome: "accepted" }),
    said(2400, "nemesis", "resume", frozen),
    said(2401, "B", "claim", { fence: 11, held: false }),
    ...bEnd.map((entry) => ({ ...entry, t: entry.t + 2_300_000 })),
    ...["A", "B", "C"].map((p) => said(3000, p, "closed")),
  ];
  const changes = [
    ...[joined(10, "A"), joined(11, "B"), joined(12, "C")],
    ...[counted(13, 1, 10, "A"), left(14, "A"), left(15, "B"), counted(16, 2, 12, "C"), left(17, "C")],
  ];
  const run = { lock: LOCK, counter: COUNTER, ttlMs: 2000, workers: ["A", "B", "C"], sabotage: false };
  return { run: { ...run, faults: ["pause-holder"] }, entries, changes, complete: true };
}

function verdictOn({ entries, changes, ...rest }: History) {
  const sorted = [...entries].sort((a, b) => a.t - b.t);
  return judge({ ...rest, entries: sorted, changes });
}
const broken = (history: History) =>
  verdictOn(history).checks.flatMap(({ promise, kept }) => (kept ? [] : [promise]));
const add = (history: History, more: { entries?: Entry[]; changes?: Change[] }): History => ({
  ...history,
  entries: [...history.entries, ...(more.entries ?? [])],
  changes: [...history.changes, ...(more.changes ?? [])],
});
const without = (history: History, drop: (entry: Entry) => boolean): History => ({
  ...history,
  entries: history.entries.filter((entry) => !drop(entry)),
});

describe("the demo's verdict", () => {
  test("finds nothing in a run that kept every promise", () => {
    const { kept, checks } = verdictOn(story());

    expect(checks.flatMap((check) => check.broken)).toEqual([]);
    expect(kept).toBe(true);
  });

  test("tells two processes that claim the lock at the same time", () => {
    const claims = [160, 260].map((ms) => said(ms, "A", "claim", { fence: 10, held: true }));
    const overlapping = without(story(), ({ p, k }) => p === "A" && k === "done");

    expect(broken(add(overlapping, { entries: claims }))).toEqual(["one holder at a time"]);
  });

  test("counts no claim while a process is frozen", () => {
    const frozen = story();

    expect(frozen.entries.some(({ p, k }) => p === "B" && k === "working")).toBe(true);
    expect(broken(frozen)).not.toContain("one holder at a time");
  });

  test("tells a thawed process that claims to hold on", () => {
    const thawedEarly = add(
      without(story(), ({ k }) => k === "resume"),
      {
        entries: [
          said(2150, "nemesis", "resume", { target: "B", fence: 11 }),
          ...[2160, 2260].map((ms) => said(ms, "B", "claim", { fence: 11, held: true })),
        ],
      },
    );

    expect(broken(thawedEarly)).toContain("one holder at a time");
  });

  test("takes a killed process to have claimed until its death, but not after its work was done", () => {
    const killed = (ms: number) => said(ms, "nemesis", "kill", { target: "A", fence: 10 });
    const alive = without(story(), ({ p, k }) => p === "A" && (k === "done" || k === "closed"));
    const done = without(story(), ({ p, k }) => p === "A" && k === "closed");

    expect(broken(add(alive, { entries: [killed(115)] }))).toEqual(["one holder at a time"]);
    expect(broken(add(done, { entries: [killed(115)] }))).toEqual([]);
  });

  test("tells holders that were not served by create revision", () => {
    const entries = hold(2350, "A", { fence: 9, n: 3, outcome: "refused" });

    expect(broken(add(story(), { entries, changes: [joined(9, "A")] }))).toEqual(
      expect.arrayContaining(["served in order", "fences rise"]),
    );
  });

  test("tells a fence that etcd never gave", () => {
    const entries = hold(2350, "A", { fence: 99, n: 3, outcome: "refused" });

    expect(broken(add(story(), { entries }))).toEqual(["served in order"]);
  });

  test("tells a stale write that etcd accepted, and the update that it destroyed", () => {
    const accepted = story();
    for (const entry of accepted.entries) if (entry["outcome"] === "refused") entry["outcome"] = "accepted";

    expect(broken(add(accepted, { changes: [counted(18, 2, 11, "B")] }))).toEqual([
      "fences rise",
      "stale writes refused",
      "no update lost",
    ]);
  });

  test("tells a write that was refused and applied all the same", () => {
    expect(broken(add(story(), { changes: [counted(18, 3, 11, "B")] }))).toContain("stale writes refused");
  });

  test("demands that a frozen holder's write was seen being refused", () => {
    const silent = without(story(), ({ p, k }) => p === "B" && k === "wrote");

    expect(broken(silent)).toEqual(["stale writes refused"]);
  });

  test("counts a late refusal as one when the unanswered attempt was never applied", () => {
    const late = story();
    for (const entry of late.entries) if (entry["outcome"] === "refused") entry["outcome"] = "refused late";

    expect(broken(late)).toEqual([]);
  });

  test("tells an accepted write that etcd never had", () => {
    const lost = story();

    expect(broken({ ...lost, changes: lost.changes.filter(({ revision }) => revision !== 16) })).toEqual([
      "no update lost",
    ]);
  });

  test("takes a repeated write of one hold for one update", () => {
    const repeated = story();
    const again = { ...counted(13.5, 1, 10, "A") };

    expect(broken(add(repeated, { changes: [again] }))).toEqual([]);
  });

  test("tells a recovery that never came or took too long", () => {
    const never = without(story(), ({ p, t }) => p === "C" && t < 3_000_000);
    const slow = story();
    for (const entry of slow.entries) if (entry.k === "fault") entry.t -= 60_000_000;

    expect(broken(never)).toContain("recovered in time");
    expect(broken(slow)).toEqual(["recovered in time"]);
  });

  test("tells a fault that was planned and never injected", () => {
    const { run, ...rest } = story();

    expect(broken({ ...rest, run: { ...run, faults: [...run.faults, "kill-leader"] } })).toEqual([
      "recovered in time",
    ]);
  });

  test("measures the recovery from a leader's death by a write begun after it", () => {
    const { run, ...rest } = story();
    const fault = said(2292, "nemesis", "fault", { target: "m1", fault: "kill-leader" });
    const later = [...hold(4000, "A", { fence: 18, n: 3, outcome: "accepted" })];
    const changes = [joined(18, "A"), counted(19, 3, 18, "A"), left(20, "A")];
    const history = add(
      { ...rest, run: { ...run, faults: [...run.faults, "kill-leader"] } },
      { entries: [fault, ...later], changes },
    );

    const { finding } = verdictOn(history).checks.find(({ promise }) => promise === "recovered in time")!;
    expect(finding).toContain("kill-leader 1.8 s");
  });

  test("tells a key left in the queue and a worker that never ended", () => {
    const ended = without(story(), ({ p, k }) => p === "C" && k === "closed");

    expect(broken(add(story(), { changes: [joined(18, "A")] }))).toEqual(["nothing left behind"]);
    expect(broken(ended)).toEqual(["nothing left behind"]);
  });

  test("does not vouch for a run whose end the observer missed", () => {
    expect(broken({ ...story(), complete: false })).toEqual(["etcd's history is complete"]);
  });
});
