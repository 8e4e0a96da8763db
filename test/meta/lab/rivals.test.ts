import { expect, it } from "vitest";
import type { Effect, Line } from "../../lab/rivals/line.js";
import { bookOf } from "../../lab/rivals/rules/book.js";
import { RULES, type Label } from "../../lab/rivals/rules/rules.js";
import { Store } from "../../lab/rivals/store.js";

const NAME = "n";
const at = (ms: number) => BigInt(ms) * 1_000_000n;

/** One client's acquire, in milliseconds. */
const of = (p: string, id: number) => {
  const line = (t: number, rest: object) => ({ t: at(t), p, id, name: NAME, ...rest }) as Line;
  return {
    ask: (t: number, timeoutMs = 20_000) => line(t, { k: "ask", timeoutMs }),
    granted: (t: number, token?: bigint) => line(t, { k: "granted", ...(token !== undefined && { token }) }),
    refused: (t: number, timeUp: boolean) => line(t, { k: "refused", timeUp, err: "why" }),
    claim: (t: number, held = true) => line(t, { k: "claim", held }),
    read: (t: number, before: number) => line(t, { k: "read", accepted: true, before }),
    write: (t: number, before: number, seq: number) => line(t, { k: "write", accepted: true, before, seq }),
    lost: (t: number) => line(t, { k: "lost" }),
    release: (t: number) => line(t, { k: "release" }),
    released: (t: number) => line(t, { k: "released" }),
  };
};
const [a, b] = [of("a", 1), of("b", 2)];

/** A fault that hits `p` from one moment to another. */
const fault = (effect: Effect, p: string, from: number, to: number): Line[] =>
  [true, false].map((on) => ({
    ...{ k: "fault", p: "stage", fault: effect, effect, on, hits: [p], t: at(on ? from : to) },
  }));

const close: Line = { k: "close", t: at(400), p: "a" };
const left = (keys: string[]): Line => ({ k: "left", t: at(1), p: "stage", when: "idle", keys });

/** a holds at 10 ms; b holds from 100 ms on. */
const overtaken = [a.ask(0), a.granted(10), b.ask(20), b.granted(100), b.claim(200), b.claim(300)];
/** b asks, and a releases at 100 ms. */
const freed = [a.ask(0), a.granted(10), a.release(100), b.ask(50)];
/** The later one is served first. */
const passed = [a.ask(0), b.ask(150), b.granted(200, 9n), b.release(210), a.granted(220, 8n)];

const violations = (label: Label, lines: readonly Line[]): number =>
  RULES[label](bookOf(lines, { ttlMs: 2000, queues: true })).violations.length;

it.each<readonly [Label, string, readonly Line[], readonly Line[]]>([
  ["I1", "two claim at a time", [...overtaken, a.claim(250)], [...overtaken, a.claim(50), a.release(90)]],
  [
    "I3",
    "a fencing token does not rise",
    [a.ask(0), a.granted(1, 7n), b.ask(2), b.granted(3, 7n)],
    passed.slice(0, 3),
  ],
  [
    "I4",
    "a write comes after one of a later holder",
    [...overtaken, b.write(210, 0, 1), a.write(220, 1, 1)],
    [...overtaken, a.write(90, 0, 1), b.write(210, 1, 2)],
  ],
  [
    "I5",
    "a write covers another",
    [...overtaken, a.read(20, 0), b.write(210, 0, 1), a.write(220, 1, 1)],
    [...overtaken, b.write(210, 0, 1), a.write(220, 1, 2)],
  ],
  ["I6", "the later one is served first", passed, [...passed, ...fault("none", "a", 0, 1)]],
  [
    "I7",
    "a lock is free for two TTLs and five seconds",
    [...freed, b.granted(9200)],
    [...freed, b.granted(9000)],
  ],
  [
    "I7",
    "a call ends with an error for no reason",
    [...freed, b.refused(500, false)],
    [...freed, ...fault("hinders", "b", 200, 300), b.refused(500, false)],
  ],
  ["I8", "a key is left behind", [left(["n/1"])], [left([])]],
  [
    "I9",
    "a loss is told late",
    [...overtaken, a.claim(150), a.release(400)],
    [...overtaken, a.claim(90, false), a.release(400)],
  ],
  [
    "I10",
    "a loss is told twice",
    [a.ask(0), a.granted(10), a.lost(20), a.lost(30)],
    [a.ask(0), a.granted(10), a.lost(20), a.release(30)],
  ],
  [
    "I11",
    "a loss is told that nothing has caused",
    [a.ask(0), a.granted(10), a.lost(500)],
    [a.ask(0), a.granted(10), close, a.lost(500)],
  ],
  [
    "I11",
    "a time limit ends long before",
    [a.ask(0, 1000), a.refused(200, true)],
    [a.ask(0, 1000), a.refused(950, true)],
  ],
  ["crash", "a process ends by itself", [{ k: "crash", t: at(1), p: "a", err: "ended by itself (1)" }], []],
])("in the comparison of locks, %s is broken when %s", (label, _, bad, good) => {
  expect(violations(label, bad)).toBeGreaterThan(0);
  expect(violations(label, good)).toBe(0);
});

it("what the locks guard refuses a token older than one that it has seen, be it in a read", () => {
  const store = new Store();
  expect(store.read({ name: "n", token: 5n })).toEqual({ accepted: true, before: 0 });
  expect(store.write({ name: "n", token: 4n }, 1).accepted).toBe(false);
  expect(store.write({ name: "n", token: 5n }, 1).accepted).toBe(true);
  expect(store.read({ name: "other", token: 1n }).accepted).toBe(true);
});
