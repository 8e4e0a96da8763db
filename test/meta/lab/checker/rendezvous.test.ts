// The rules of latches and barriers, each with one mistake.
import { expect, it } from "vitest";
import { judge, type Label } from "../../../lab/checker/judge.js";
import { Story } from "../../../lab/checker/story.js";
import { splitEvents } from "../../../lab/runner/delay-keys.js";
import type { Called, Meeting, Returned, Setting } from "../../../lab/runner/history.js";

const NAME = "lock/a";
const LATCH = `/leasehold/latch/${NAME}//`;
const ns = (at: number) => BigInt(Math.round(at * 1e6));

/** A call, and what its caller is told; without `to`, it is never told. */
interface Call extends Partial<
  Pick<Called, "number" | "onCrash" | "owner" | "item" | "of" | "limitMs" | "quits">
> {
  readonly p?: string;
  readonly from: number;
  readonly to?: number | undefined;
  readonly told?: Partial<Returned>;
}

class Meetings extends Story {
  #ids = 0;

  does(f: Meeting, { p = "w1.0", from, to, told, ...more }: Call): this {
    const of = { p, id: ++this.#ids, lock: NAME, f };
    this.tell({ k: "called", t: ns(from), ...of, ...more });
    if (to === undefined) return this;
    return this.tell({ k: "returned", t: ns(to), status: "ok", ...told, ...of });
  }

  first(at: number, rev: number, isOpen: boolean, round = "r1"): this {
    return this.put(at, rev, `${LATCH}latch`, { count: 2, round, isOpen });
  }

  broken(label: Label, setting: Pick<Setting, "observed"> = {}): number {
    const run = this.tell({ k: "stall", p: "w9.0", t: ns(60_000), ms: 0 }).run(setting);
    return judge({ ...run, ...splitEvents(run.server) }, [label]).violations[label]?.length ?? 0;
  }
}

/** Two counts open a latch for one who waits; a third call finds it open. */
function latch(
  given: { opens?: number; waits?: number; again?: boolean; told?: Partial<Returned>; missing?: number } = {},
) {
  const { opens = 21, waits = 25, again = false, told, missing = 1 } = given;
  const story = new Meetings()
    .does("wait", { from: 1, to: waits, number: 2, onCrash: "reject", ...(told && { told }) })
    .does("countDown", { from: 5, to: 12, number: 2 })
    .first(10, 10, false)
    .put(10, 10, `${LATCH}r1/counted/x`, { owner: "any" })
    .does("count", { from: 13, to: 14, number: 2, told: { n: missing } })
    .does("countDown", { from: 15, to: 22, number: 2, item: "job" })
    .put(20, 20, `${LATCH}r1/counted/=job`, { owner: "any" })
    .first(opens, opens, true)
    .does("countDown", { from: 30, to: 31, number: 2 });
  return again ? story.put(12, 12, `${LATCH}r1/counted/y`, { owner: "any" }) : story;
}

/** A counter is enlisted, and its session ends: the one who waits is told so. */
function counter(
  given: {
    dies?: number;
    told?: Partial<Returned>;
    onCrash?: "reject" | "continue";
    to?: number | undefined;
  } = {},
) {
  const {
    dies = 20,
    told = { status: "LATCH_BROKEN", why: "crashed", owners: "w2.0/0" },
    onCrash = "reject",
  } = given;
  return new Meetings()
    .does("enlist", { p: "w2.0", from: 1, to: 12, number: 2, owner: "w2.0/0", of: 1 })
    .first(10, 10, false)
    .put(10, 10, `${LATCH}r1/enlisted/c`, { owner: "w2.0/0" })
    .put(10, 10, `${LATCH}r1/alive/c`, { owner: "w2.0/0" })
    .del(dies, 30, `${LATCH}r1/alive/c`)
    .does("wait", { from: 15, to: "to" in given ? given.to : 40, number: 2, onCrash, told });
}

/** w1 closes a barrier, w2 waits for it, w3 releases it. */
function gate(
  given: { released?: boolean; passes?: number; again?: boolean; n?: number; told?: Partial<Returned> } = {},
) {
  const { released = true, passes = 25, again = false, n = 1, told } = given;
  const story = new Meetings()
    .does("hold", { from: 5, to: 12, onCrash: "stay", told: { n } })
    .put(10, 10, `${NAME}/gate`, { owner: "any" })
    .does("pass", { p: "w2.0", from: 13, to: passes, ...(told && { told }) })
    .del(20, 20, `${NAME}/gate`);
  if (released) story.does("release", { p: "w3.0", from: 15, to: 22 });
  return again ? story.put(30, 30, `${NAME}/gate`, { owner: "any" }) : story;
}

const member = (p: string, number = 2) => ({ owner: `${p}/0`, members: number });
const waiter = (id: string) => `${NAME}/double/waiters/${id}`;
const record = (id: string) => `/leasehold/barrier/${NAME}/double//m/${id}`;

interface Round {
  /** When the second member comes, by etcd. */
  readonly comes?: number;
  readonly leaves?: number;
  readonly dies?: boolean;
  readonly told?: Partial<Returned>;
  readonly to?: number | undefined;
  readonly full?: boolean;
}
/** Two members enter and leave together. */
function round(given: Round = {}) {
  const { comes = 12, leaves = 42, dies = false, told, full = false } = given;
  const of = { number: 2, onCrash: "reject" } as const;
  const [a, b] = [
    { ...of, p: "w1.0", owner: "w1.0/0", of: 1 },
    { ...of, p: "w2.0", owner: "w2.0/0", of: 2 },
  ];
  const story = new Meetings()
    .does("enter", { ...a, from: 5, to: 25 })
    .does("enter", { ...b, from: 6, to: 26 })
    .put(10, 10, waiter("a"), member("w1.0"))
    .put(10, 10, record("a"), member("w1.0"))
    .put(comes, comes, waiter("b"), member("w2.0"))
    .put(comes, comes, record("b"), member("w2.0"))
    .put(20, 20, `${NAME}/double/ready`, { members: [] })
    .does("leave", { ...a, from: 30, to: "to" in given ? given.to : 45, ...(told && { told }) })
    .del(35, 35, waiter("a"))
    .del(35, 35, record("a"))
    .del(leaves, 40, waiter("b"));
  if (full)
    story.does("enter", {
      ...of,
      p: "w3.0",
      owner: "w3.0/0",
      from: 7,
      to: 11,
      told: { status: "BARRIER_FULL" },
    });
  return dies ? story : story.del(leaves, 40, record("b"));
}

const DEAD = { status: "BARRIER_BROKEN", phase: "leave", owners: "w2.0/0" };

it.each([
  ["I34", latch(), 0],
  ["I34, for it opened with one missing", latch({ opens: 15 }), 1],
  ["I34, for its wait ended before", latch({ waits: 18 }), 1],
  ["I34, for one count was missing", latch({ missing: 0 }), 1],
  ["I34, for its round went on", latch({ told: { status: "LATCH_BROKEN", why: "reset" } }), 1],
  ["I34, for all used one number", latch({ told: { status: "COUNT_MISMATCH" } }), 1],
  ["I34, a death", counter(), 0],
  ["I34, a death that is told before", counter({ dies: 50 }), 1],
  ["I34, a death that was not to be told", counter({ onCrash: "continue" }), 1],
  [
    "I34, a death of another one",
    counter({ told: { status: "LATCH_BROKEN", why: "crashed", owners: "w3.0/0" } }),
    1,
  ],
  ["I35", latch(), 0],
  ["I35, for one call counts twice", latch({ again: true }).does("wait", { from: 50, to: 51, number: 2 }), 1],
  ["I35, for it has not counted", latch().does("countDown", { from: 2, to: 4, number: 2 }), 1],
  ["I36", gate(), 0],
  ["I36, for nobody has released it", gate({ released: false }), 1],
  ["I36, for its wait ended before", gate({ passes: 18 }), 1],
  ["I36, for it closes twice", gate({ again: true }), 1],
  ["I36, for no holder has died", gate({ told: { status: "BARRIER_BROKEN", owners: "any" } }), 1],
  [
    "I36, for a call has closed it that was told of an open one",
    gate().does("hold", { from: 50, to: 51, told: { n: 0 } }),
    1,
  ],
  ["I37", round(), 0],
  ["I37, for it opens with one missing", round({ comes: 22 }), 3],
  ["I37, for one has not left", round({ leaves: 50 }), 1],
  ["I37, for one has died, and it's not told", round({ dies: true }), 1],
  ["I37, for one has died", round({ dies: true, told: DEAD }), 0],
  ["I37, for none has died", round({ told: DEAD }), 1],
  ["I37, for there was room", round({ full: true }), 1],
  ["I38", latch(), 0],
  ["I38, a wait that goes on when all have counted", latch({ waits: 20_000 }), 1],
  ["I38, a wait that goes on when a counter is dead", counter({ to: undefined }), 1],
  ["I38, a wait that nobody need tell of the dead", counter({ to: undefined, onCrash: "continue" }), 0],
  ["I38, a wait that goes on when nobody holds it", gate({ passes: 20_000 }), 1],
  ["I38, a member that waits when all have left", round({ to: undefined }), 1],
  ["I38, a code that nobody knows", latch({ told: { status: "TypeError" } }), 1],
  ["I38, a call that ends too late", latch().does("count", { from: 100, to: 900, limitMs: 100 }), 1],
] as const)("%s", (label, story, count) => {
  expect(story.broken(label.slice(0, 3) as Label)).toBe(count);
});

/** Two counts open a latch, and one who waits is told so at 15; etcd's keys are dated at `at`. */
const opened = (at: number) =>
  new Meetings()
    .does("wait", { from: 1, to: 15, number: 2, onCrash: "reject" })
    .does("countDown", { from: 2, to: 12, number: 2 })
    .does("countDown", { from: 2, to: 12, number: 2 })
    .put(at, 10, `${LATCH}r1/counted/x`, { owner: "any" })
    .put(at, 10, `${LATCH}r1/counted/y`, { owner: "any" })
    .first(at, 10, true);

it("what an observer has seen after the answer counts for half a second, and while etcd is hindered until half a second later", () => {
  const broken = (story: Meetings, observed?: true) =>
    (["I34", "I35"] as const).map((label) => story.broken(label, observed ? { observed } : {}));
  expect(broken(opened(300))).toEqual([1, 4]);
  expect(broken(opened(300), true)).toEqual([0, 0]);
  expect(broken(opened(700), true)).toEqual([1, 4]);
  const hindered = (at: number) => opened(at).hindered(10, 1000);
  expect(broken(hindered(1300), true)).toEqual([0, 0]);
  expect(broken(hindered(1700), true)).toEqual([1, 4]);
});

it("a wait is late only if what it waits for was surely there for long enough, though an observer has seen the end of that late", () => {
  const closedAgain = (at: number) =>
    new Meetings()
      .does("hold", { from: 5, to: 12, onCrash: "stay", told: { n: 1 } })
      .put(10, 10, `${NAME}/gate`, { owner: "any" })
      .does("pass", { p: "w2.0", from: 50, to: 5000 })
      .del(100, 11, `${NAME}/gate`)
      .put(at, 12, `${NAME}/gate`, { owner: "any" });
  expect([closedAgain(1000), closedAgain(1300)].map((story) => story.broken("I38"))).toEqual([0, 1]);
  const seen = (at: number) => closedAgain(at).broken("I38", { observed: true });
  expect([seen(1300), seen(1700)]).toEqual([0, 1]);
});
