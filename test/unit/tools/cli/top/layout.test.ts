// What `leasehold top` makes of a board: rows, lines of the screen, keys, and the output that changes the screen.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SeenEntry } from "../../../../../src/lock/queue/seen-entry.js";
import type { BoardQueue } from "../../../../../src/observe/board.js";
import { width, cut, fit } from "../../../../../src/tools/cli/io.js";
import {
  ENTER_SCREEN,
  layout,
  LEAVE_SCREEN,
  Painter,
  type Picture,
} from "../../../../../src/tools/cli/top/screen.js";
import {
  FIRST_VIEW,
  type Key,
  press,
  Rates,
  selectedOf,
  tableOf,
  type View,
} from "../../../../../src/tools/cli/top/rows.js";
import { keyValue } from "../../../../support/fakes/fake-member.js";
import { Screen } from "../../../../support/programs/screen.js";

const NOW = { monotonic: 100_000, date: new Date("2031-05-05T12:00:00Z") };

const entry = (owner: string, reason?: string): SeenEntry => {
  const value = JSON.stringify({ owner, since: "2031-05-05T11:00:00Z", id: "x", reason });
  return new SeenEntry(keyValue({ key: "jobs/1f", createRevision: 5n, leaseId: 0x1fn, value }));
};

const queue = (name: string, waiting = 0, owner = "web-1", grantedAt?: number): BoardQueue => ({
  ...{ name, kind: "mutex", holders: [entry(owner)], holderCount: 1, waiterCount: waiting, grants: 0 },
  ...{ deadHolders: 0, deadCount: 0 },
  grantedAt: () => grantedAt,
  waiters: Array.from({ length: waiting }, (_, n) => entry(`waiter-${n}`)),
});

function pictureOf(
  queues: readonly BoardQueue[],
  view: View = FIRST_VIEW,
  more: Partial<Picture> = {},
): Picture {
  const table = tableOf(queues, { sort: view.sort, filter: view.filter, rates: new Rates(), now: NOW });
  const names = table.rows.map((row) => row.queue.name);
  return {
    ...{ prefix: "jobs/", view, table, queue: undefined, rate: 0, revision: 42n, now: NOW },
    freeIn: () => undefined,
    selected: selectedOf(view, names),
    contact: { state: "answers", since: 0, error: undefined },
    ...more,
  };
}

const textOf = (picture: Picture, size = { columns: 80, rows: 24 }) =>
  layout(picture, size).map(({ text }) => text.trimEnd());

describe("the screen", () => {
  test("says of a sticky lock that it may be kept, and how long it was held at most", () => {
    const value = JSON.stringify({ owner: "web-1", since: "2031-05-05T11:00:00Z", id: "x", sticky: true });
    const kept = new SeenEntry(keyValue({ key: "jobs/a/1f", createRevision: 5n, leaseId: 0x1fn, value }));
    const sticky = { ...queue("jobs/a", 0, "web-1", 95_000), holders: [kept] };
    const open = { name: "jobs/a", queue: sticky, history: [], scroll: 0 };

    expect(textOf(pictureOf([sticky]))).toContain(
      "jobs/a                 mutex      (sticky) web-1           0      <5 s       0/s",
    );
    const [title, line] = textOf(pictureOf([sticky], FIRST_VIEW, { queue: open })).slice(2);
    expect(title).toBe("jobs/a  mutex, 1 held or kept, 0 waiting");
    expect(line).toMatch(/^ {2}sticky <5 s {9}web-1 .*lease 1f$/);
  });

  test("has a title, the state, the columns, the rows by waiters, and the keys", () => {
    const lines = textOf(pictureOf([queue("jobs/a"), queue("jobs/b", 7, "web-2", 95_000)]));

    expect(lines).toHaveLength(24);
    expect(lines.slice(0, 5)).toEqual([
      "leasehold top  jobs/*  2 locks  2 holding  7 waiting  0/s grants",
      "revision 42",
      "NAME                   KIND       HOLDER               WAIT*      HELD      RATE",
      "jobs/b                 mutex      web-2                    7       5 s       0/s",
      "jobs/a                 mutex      web-1                    0   <60 min       0/s",
    ]);
    expect(lines.at(-1)).toContain("q quit");
  });

  test("fits any terminal, whatever names and owners contain", () => {
    const text = fc.string({ unit: "binary", minLength: 1, maxLength: 120 });
    const size = fc.record({
      columns: fc.integer({ min: 1, max: 200 }),
      rows: fc.integer({ min: 1, max: 60 }),
    });
    fc.assert(
      fc.property(
        fc.array(fc.tuple(text, text), { maxLength: 60 }),
        size,
        fc.boolean(),
        (pairs, size, opens) => {
          const queues = pairs.map(([name, owner]) => queue(name, 3, owner));
          const shown = queues[0] && {
            ...{ name: queues[0].name, queue: queues[0], scroll: 0 },
            history: [
              { kind: "ended", entry: entry(pairs[0]![1]), at: 0, revision: 1n, together: 2 } as const,
            ],
          };
          const lines = layout(pictureOf(queues, FIRST_VIEW, opens ? { queue: shown } : {}), size);

          expect(lines.length).toBe(size.rows);
          for (const { text } of lines) {
            expect(width(text)).toBeLessThanOrEqual(size.columns);
            expect(text).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u);
          }
        },
      ),
      { numRuns: 40 },
    );
  });

  test("shows why the holder and the waiters are there, escaped and cut, where several hold only in the queue", () => {
    const hostile = "\u001b[2J\u202e漢字".repeat(30);
    const alone = { ...queue("jobs/a", 1, "web-1"), holders: [entry("web-1", "deploy 4711")] };
    const evil = { ...queue("jobs/b"), holders: [entry("evil", hostile)] };
    const two = [entry("web-2", "backup"), entry("web-3")];
    const shared = { ...queue("jobs/c"), holders: two, holderCount: 2, waiters: [entry("web-4", hostile)] };
    const opened = { name: "jobs/c", queue: { ...shared, waiterCount: 1 }, history: [], scroll: 0 };

    const table = textOf(pictureOf([alone, evil, shared]));
    const lines = textOf(pictureOf([shared], FIRST_VIEW, { queue: opened }), { columns: 100, rows: 24 });

    expect(table.slice(3, 6).map((line) => line.slice(34, 55).trimEnd())).toEqual([
      "web-1 (deploy 47…",
      "evil (\\u001b[2J\\…",
      "web-2 +1",
    ]);
    expect(lines.slice(3, 6).map((line) => line.slice(22).replace(/ +lease .*/, ""))).toEqual([
      "web-2 (backup)",
      "web-3",
      "web-4 (\\u001b[2J\\u202e漢字\\u001b[2J\\u202e漢字\\u001b[2…",
    ]);
    for (const line of [...table, ...lines]) expect(line).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u);
  });

  test("shows in the queue of a weighted semaphore what each takes, and how many permits are taken", () => {
    const weighing = (owner: string, weight: unknown) => {
      const value = JSON.stringify({ owner, id: "x", weighted: { weight, permits: 10 } });
      return new SeenEntry(keyValue({ key: "jobs/1f", createRevision: 5n, leaseId: 0x1fn, value }));
    };
    const holders = [weighing("web-1", 3), weighing("web-2", 6)];
    const waiters = [weighing("web-3", 10), weighing("evil", "\u001b[2J")];
    const kind = "semaphore" as const;
    const shared = { ...queue("jobs/c"), kind, holders, holderCount: 2, waiters, waiterCount: 2 };
    const opened = { name: "jobs/c", queue: shared, history: [], scroll: 0 };

    const [title, ...lines] = textOf(pictureOf([shared], FIRST_VIEW, { queue: opened })).slice(2, 7);

    expect(title).toBe("jobs/c  semaphore, 2 holding 9 of 10 permits, 2 waiting");
    expect(lines.map((line) => line.slice(22).replace(/ +lease .*/, ""))).toEqual([
      ...["3 of 10  web-1", "6 of 10  web-2", "10 of 10  web-3", "evil"],
    ]);
  });

  test("keeps the selected row in sight in a long table", () => {
    const queues = Array.from({ length: 100 }, (_, n) => queue(`jobs/${String(n).padStart(3, "0")}`));
    for (const selected of ["jobs/000", "jobs/050", "jobs/099"]) {
      const lines = layout(pictureOf(queues, { ...FIRST_VIEW, selected }), { columns: 80, rows: 24 });
      expect(lines.filter(({ style }) => style === "inverse").map(({ text }) => text.slice(0, 8))).toEqual([
        selected,
      ]);
    }
  });

  test("shows for how long etcd has not answered, and what the table is then", () => {
    const contact = { state: "silent", since: 88_000, error: new Error("refused") } as const;
    const lines = layout(pictureOf([], FIRST_VIEW, { contact }), { columns: 80, rows: 24 });

    expect(lines[1]).toMatchObject({ style: "alert" });
    expect(lines[1]!.text.trimEnd()).toBe("ETCD DOES NOT ANSWER for 12 s; this is revision 42. refused");
    const begins = layout(pictureOf([], FIRST_VIEW, { contact: { ...contact, since: 99_900 } }), {
      columns: 80,
      rows: 24,
    });
    expect(begins[1]!.text.trimEnd()).toBe("ETCD DOES NOT ANSWER; this is revision 42. refused");
  });

  test("shows a queue with its ranks, and says of an end only what is known", () => {
    const shown = queue("jobs/b", 2);
    const history = [
      { kind: "released", entry: entry("web-7"), at: 98_000, revision: 1n, together: 1 },
      { kind: "ended", entry: entry("web-8"), at: 99_000, revision: 2n, together: 3 },
    ] as const;
    const lines = textOf(
      pictureOf([shown], FIRST_VIEW, { queue: { name: "jobs/b", queue: shown, history, scroll: 0 } }),
    );

    expect(lines.slice(2, 9)).toEqual([
      "jobs/b  mutex, 1 holding, 2 waiting",
      "  holds <60 min       web-1                               lease 1f",
      "  1. waits 60 min     waiter-0                            lease 1f",
      "  2. waits 60 min     waiter-1                            lease 1f",
      "recent events:",
      "  1 s ago       released or lost   web-8 (with 3 keys of its lease)",
      "  2 s ago       released           web-7",
    ]);
  });
});

describe("a dead holder", () => {
  const leaseId = 0x4000_0000_0000_001fn;
  const value = JSON.stringify({ owner: "web-9", since: "2031-05-05T11:00:00Z", id: "x" });
  const dead = new SeenEntry(keyValue({ key: `jobs/${leaseId.toString(16)}`, leaseId, value }));
  const freeIn = () => 15_400;

  test("does not count as holding, and is shown with the time until its place is free", () => {
    const jobs = { ...queue("jobs", 1), holders: [dead], deadHolders: 1, deadCount: 1 };
    const lines = textOf(pictureOf([jobs], FIRST_VIEW, { freeIn }), { columns: 100, rows: 24 });

    expect([lines[0], lines[3]]).toEqual([
      "leasehold top  jobs/*  1 lock  0 holding  1 waiting  0/s grants",
      `${"jobs".padEnd(34)}mutex      (free in 16 s) web-9              1         -       0/s`,
    ]);
    const open = { name: "jobs", queue: jobs, history: [], scroll: 0 };
    const opened = textOf(pictureOf([jobs], FIRST_VIEW, { freeIn, queue: open }));
    expect(opened.slice(2, 4)).toEqual([
      "jobs  mutex, 0 holding, 1 waiting, 1 dead",
      expect.stringMatching(/^ {2}dead, free in 16 s {2}web-9 /),
    ]);
  });

  test("stands behind one that holds, as a dead waiter behind none", () => {
    const jobs = queue("jobs", 1);
    const shared = { ...jobs, holders: [dead, entry("web-1")], holderCount: 2, deadHolders: 1, deadCount: 2 };
    const lines = textOf(pictureOf([shared], FIRST_VIEW, { freeIn }));

    expect(lines[0]).toContain("1 holding  0 waiting");
    expect(lines[3]).toMatch(/web-1 +0 +<60 min/);
  });
});

describe("a text of another client", () => {
  test("is cut by the columns that it fills, never within a character", () => {
    expect(cut("漢字漢字", 5)).toBe("漢字…");
    expect(cut("漢字漢字", 4)).toBe("漢…");
    expect(fit("漢", 4)).toBe("漢  ");
    expect(fit("7", 3, "right")).toBe("  7");
    expect(cut(`e${"\u0301".repeat(5000)}`, 3).length).toBeLessThan(20);
    expect(cut("a", 0)).toBe("");
  });
});

describe("a key", () => {
  const shown = { names: ["a", "b", "c"], height: 20, length: 30 };
  const after = (...keys: readonly (Key | string)[]) =>
    keys.reduce<View | "quit">((view, key) => {
      const pressed = typeof key === "string" ? { name: key, text: key } : key;
      return view === "quit" ? view : press(view, pressed, shown);
    }, FIRST_VIEW);
  const named = (name: string): Key => ({ name });

  test("sorts, selects within the table, and quits", () => {
    expect(["w", "h", "r"].map((key) => (after(key) as View).sort)).toEqual(["waiters", "held", "rate"]);
    expect(after("j")).toMatchObject({ selected: "b" });
    expect(after(named("end"), "j", named("up"))).toMatchObject({ selected: "b" });
    expect(after(named("pagedown"), named("home"), "k")).toMatchObject({ selected: "a" });
    expect(after("q")).toBe("quit");
    expect(after({ name: "z", ctrl: true })).toEqual(FIRST_VIEW);
  });

  test("is part of the filter while that is typed, and q is a letter then", () => {
    expect(after("/", "q", "x", named("backspace"), named("return"))).toMatchObject({
      filter: "q",
      isTyping: false,
    });
    expect(after("/", "q", named("escape"))).toMatchObject({ filter: "", isTyping: false });
    expect(after("/", { name: "up", text: "\u001b[A" })).toMatchObject({ filter: "" });
  });

  test("scrolls an open queue no farther than its end", () => {
    expect(after("j", named("return"), named("end"))).toMatchObject({ open: "b", scroll: 10 });
    expect(after("j", named("return"), "j", named("escape"))).toMatchObject({
      open: undefined,
      selected: "b",
    });
  });
});

describe("the painter", () => {
  test("writes only lines that differ, and the screen shows what it was given", () => {
    const [painter, screen] = [new Painter(), new Screen()];
    const paint = (texts: readonly string[]) => {
      const before = screen.writes;
      screen.write(painter.paint(texts.map((text) => ({ text, style: "bold" }))));
      expect(screen.lines.slice(0, texts.length)).toEqual(texts);
      return screen.writes - before;
    };
    screen.write(ENTER_SCREEN);

    expect([paint(["a", "long line", "c"]), paint(["a", "b", "c"]), paint(["a", "b", "c"])]).toEqual([
      3, 1, 0,
    ]);
    painter.clear();
    expect(paint(["a", "b", "c"])).toBe(3);
    screen.write(LEAVE_SCREEN);
    expect([screen.isAlternate, screen.isCursorVisible, screen.wraps]).toEqual([false, true, true]);
  });
});

test("the painter keeps the last column of a full line", () => {
  const [painter, screen] = [new Painter(), new Screen()];
  const full = "x".repeat(screen.columns);
  screen.write(ENTER_SCREEN + painter.paint([{ text: "short" }, { text: full }]));
  screen.write(painter.paint([{ text: full }, { text: "short" }]));

  expect(screen.lines.slice(0, 2)).toEqual([full, "short"]);
});

describe("the rates", () => {
  test("are grants in a second, fade, and survive a name that comes and goes", () => {
    const rates = new Rates();
    for (let n = 1; n <= 1000; n++) rates.count("a", n, n * 100);
    expect(rates.perSecond("a", 100_000)).toBeCloseTo(10, 0);
    expect(rates.perSecond("a", 200_000)).toBeLessThan(0.001);
    rates.forget(100_000, () => false);
    expect(rates.perSecond("a", 100_000)).toBeGreaterThan(9);
    rates.forget(300_000, () => false);
    rates.count("a", 1, 300_000);
    expect(rates.perSecond("a", 300_000)).toBeCloseTo(0.1, 2);
  });
});
