// The rules of shards, each with one mistake. Two members, w1 and w2, and the one shard of the group lock/g.
import { expect, it } from "vitest";
import { judge, type Label } from "../../../lab/checker/judge.js";
import { Story } from "../../../lab/checker/story.js";
import { splitEvents } from "../../../lab/runner/delay-keys.js";

const GROUP = "lock/g";
const SHARD = `${GROUP}/shard/0`;
const ns = (at: number) => BigInt(Math.round(at * 1e6));

interface Course {
  /** When w2's entry is put, by etcd's time. */
  readonly joined?: number;
  /** When the work of w1 is told to stop, and when it has settled. */
  readonly moved?: number;
  readonly ran?: number;
  /** When w1 lets its lock go. */
  readonly released?: number;
  /** What the key of w1 says, and when somebody deletes it. */
  readonly state?: string;
  readonly deleted?: number;
  readonly drained?: boolean;
  /** When the work of w1 has begun once more. */
  readonly again?: number;
  readonly held?: boolean;
  /** When the key of w1 is deleted, if it isn't by the release. */
  readonly gone?: number;
  /** The record is that of a lab, and not of a simulated run. */
  readonly lab?: boolean;
  readonly fences?: string;
  readonly rev?: number;
  /** The revision at which etcd is compacted before w2 sees that. */
  readonly compacted?: number;
  /** When w2 sees it. */
  readonly viewed?: number;
  /** w2 declines the shard, and is no owner in the end. */
  readonly alone?: boolean;
}

const member = (declines: readonly number[] = [], state = "active") => ({
  ...{ capacity: 1, state },
  shards: { count: 1, declines },
});

/** w1 owns the shard, and gives it up to w2 at 20 ms. */
function course(given: Course = {}): Story {
  const {
    joined = 10,
    moved = 20,
    ran = 30,
    released = 31,
    state,
    deleted,
    drained,
    again,
    held = true,
    gone,
    lab,
    fences = "21",
    rev = 22,
    compacted,
    viewed = 50,
    alone,
  } = given;
  const of = { p: "w1", id: 1, lock: SHARD, token: 12n } as const;
  const at = (t: number, p: string) => ({ t: ns(t), p, lock: GROUP });
  const story = new Story()
    .put(0, 10, `${GROUP}/members/w1`, member([], state))
    .put(0.1, 11, `${GROUP}/members/w2`, member(alone ? [0] : []))
    .put(1, 12, `${SHARD}/w1`, { owner: "w1/0" })
    .tell({ k: "invoke", f: "acquire", t: ns(2), p: "w1", id: 1, lock: SHARD, given: true })
    .grant(2, "w1", 1, 12, { lock: SHARD, key: `${SHARD}/w1` })
    .tell({ k: "run", t: ns(2.1), ...of, owner: "w1/0", held });
  if (lab !== true) story.heard(0, "w1", 1, "lock/other");
  if (gone !== undefined) story.del(gone, 14, `${SHARD}/w1`);
  if (!alone) story.put(joined, 21, `${SHARD}/w2`, { owner: "w2/0" });
  if (deleted !== undefined) story.del(deleted, 13, `${GROUP}/members/w1`);
  story.tell({ k: "moved", t: ns(moved), ...of, ...(drained !== undefined && { drained }) });
  story.tell({ k: "ran", t: ns(ran), ...of });
  if (again !== undefined) story.tell({ k: "run", t: ns(again), ...of, id: 2, owner: "w1/0", held });
  if (compacted !== undefined) {
    const compact = { fault: "compact", effect: "hinders", target: String(compacted) } as const;
    story.fault(40, true, compact).fault(40, false, compact);
  }
  story.tell({ k: "end", t: ns(released), ...of, reason: "released" });
  if (gone === undefined) story.del(released + 1, 22, `${SHARD}/w1`);
  return story
    .tell({ k: "viewed", ...at(viewed, "w2"), rev: BigInt(rev), fences })
    .tell({ k: "settled", ...at(60, "w2"), count: 1, fences: alone ? "" : "21" });
}

const LATE = { joined: 2025, moved: 2020, ran: 2030, drained: false };

function broken(label: Label, given?: Course): number {
  const run = course(given).run();
  return judge({ ...run, ...splitEvents(run.server) }, [label]).violations[label]?.length ?? 0;
}

it.each([
  ["I24", {}, 0],
  ["I24, for it runs twice", { again: 25 }, 1],
  ["I24, for it ran before", { again: 30.5 }, 0],
  ["I24, for its lock was not held", { held: false }, 1],
  ["I24, for its lock ended as it began", { held: false, lab: true }, 0],
  ["I24, for the key of its lock was gone", { held: false, lab: true, gone: 1.5 }, 1],
  ["I25", {}, 0],
  ["I25, for the work goes on", { ran: 40 }, 1],
  ["I26", {}, 0],
  ["I26, for nobody stood there yet", { joined: 25 }, 1],
  ["I26, for its member had drained", { joined: 25, drained: true }, 0],
  ["I26, for its member left, and the other one had just come", { joined: 25, drained: false }, 0],
  ["I26, for its member left too early", { ...LATE, released: 2031 }, 1],
  ["I26, for its place had gone before", LATE, 0],
  ["I26, for its session is replaced", { joined: 25, state: "draining" }, 0],
  ["I26, for it had said so before its key was deleted", { joined: 25, state: "draining", deleted: 15 }, 0],
  ["I26, for its key was deleted before it said so", { joined: 25, deleted: 15 }, 1],
  ["I27", {}, 0],
  ["I27, for those that could take it don't", { alone: true }, 1],
  ["I28", {}, 0],
  ["I28, for it saw the older fence", { fences: "12" }, 1],
  ["I28, for it saw the older fence, and the deletion was compacted", { fences: "12", compacted: 22 }, 0],
  ["I28, for it saw the older fence, and another revision was compacted", { fences: "12", compacted: 21 }, 1],
  ["I28, for it saw the older fence for too long", { fences: "12", compacted: 22, viewed: 20_000 }, 1],
  ["I28, for it saw the later one too early", { rev: 21 }, 1],
] as const)("%s: %j", (label, given, count) => {
  expect(broken(label.slice(0, 3) as Label, given)).toBe(count);
});
