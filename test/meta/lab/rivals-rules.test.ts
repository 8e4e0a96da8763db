import { describe, expect, it } from "vitest";
import type { Effect, Line } from "../../lab/rivals/line.js";
import { bookOf } from "../../lab/rivals/rules/book.js";
import type { Finding } from "../../lab/rivals/rules/rule.js";
import { RULES, type Label } from "../../lab/rivals/rules/rules.js";
import { longestStall } from "../../lab/rivals/rules/stalls.js";

const TTL_MS = 2000;
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
const [a, b, c] = [of("a", 1), of("b", 2), of("c", 3)];

/** A fault that hits `p` from one moment to another. */
const fault = (effect: Effect, p: string, from: number, to: number): Line[] =>
  [true, false].map((on) => ({
    ...{ k: "fault", p: "stage", fault: effect, effect, on, hits: [p], t: at(on ? from : to) },
  }));

const judged = (label: Label, lines: Line[], queues = true): Finding =>
  RULES[label](bookOf(lines, { ttlMs: TTL_MS, queues }));
const lengths = (label: Label, lines: Line[]) => judged(label, lines).violations.map(({ ms }) => ms);
const count = (label: Label, lines: Line[]) => judged(label, lines).violations.length;

const overtaken = [a.ask(0), a.granted(10), b.ask(20), b.granted(100), b.claim(200), b.claim(300)];

describe("two claims at once", () => {
  it("count for as long as both last", () => {
    expect(lengths("I1", [...overtaken, a.claim(250)])).toEqual([150]);
  });

  it("do not count while the process is stopped", () => {
    const stopped = fault("stops", "a", 50, 240);
    expect(lengths("I1", [...overtaken, ...stopped, a.claim(250)])).toEqual([10]);
  });

  it("end with the client's own word that it no longer holds", () => {
    const told = [a.claim(150), a.claim(200, false), a.claim(250, false)];
    expect(lengths("I1", [...overtaken, ...told])).toEqual([50]);
  });

  it("do not count between a word that it does not hold and one that it does", () => {
    const again = [a.claim(150), a.claim(160, false), a.claim(280), a.claim(290)];
    expect(lengths("I1", [...overtaken, ...again])).toEqual([60]);
  });

  it("are none when one releases before the other is granted", () => {
    expect(count("I1", [...overtaken, a.claim(50), a.release(90), a.claim(250)])).toBe(0);
  });
});

describe("a loss", () => {
  it("that is never told counts until the release", () => {
    const never = [...overtaken, a.claim(250), a.release(400)];
    expect(judged("I9", never).violations).toEqual([{ text: "a was never told that b holds", ms: 300 }]);
  });

  it("that is told late counts until then", () => {
    const late = [...overtaken, a.claim(150), a.claim(180, false), a.release(400)];
    expect(judged("I9", late).violations).toEqual([{ text: "a was told late that b holds", ms: 80 }]);
  });

  it("is not late for the time in which the process was stopped", () => {
    const stopped = [...fault("stops", "a", 50, 240), a.claim(250), a.claim(270, false)];
    expect(lengths("I9", [...overtaken, ...stopped])).toEqual([30]);
  });

  it("is told in time by who does not claim any more when the next one is granted", () => {
    expect(judged("I9", [...overtaken, a.claim(90, false), a.release(400)])).toEqual({
      ...{ checks: 1, violations: [] },
    });
  });

  it("is false where nothing was wrong", () => {
    expect(lengths("I11", [a.ask(0), a.granted(10), a.lost(500)])).toEqual([490]);
  });

  it("is not false for one who could not reach a server, or whom the server has replaced", () => {
    expect(count("I11", [a.ask(0), a.granted(10), ...fault("hinders", "a", 20, 400), a.lost(500)])).toBe(0);
    expect(count("I11", [...overtaken, a.lost(150)])).toBe(0);
  });

  it("is not false for one who closes", () => {
    expect(count("I11", [a.ask(0), a.granted(10), { k: "close", t: at(400), p: "a" }, a.lost(500)])).toBe(0);
  });

  it("may be told once, and not after the release", () => {
    expect(count("I10", [a.ask(0), a.granted(10), a.lost(20), a.lost(30)])).toBe(1);
    expect(count("I10", [a.ask(0), a.granted(10), a.release(20), a.released(30), a.lost(40)])).toBe(1);
    expect(count("I10", [a.ask(0), a.granted(10), a.lost(20), a.release(30), a.released(40)])).toBe(0);
  });
});

describe("a release", () => {
  const third = [c.ask(110), c.granted(220)];

  it("that lets in a third while the second holds has released the second's lock", () => {
    expect(count("I10", [...overtaken, a.release(210), ...third])).toBe(1);
  });

  it("is not to blame when the second was told of its loss before", () => {
    expect(count("I10", [...overtaken, a.release(210), b.lost(215), ...third, b.release(400)])).toBe(0);
  });
});

describe("fencing tokens", () => {
  it("are missing where no grant has one", () => {
    expect(judged("I3", overtaken).lacks).toBe("no token");
  });

  it("must rise", () => {
    const grants = (second: bigint) => [a.ask(0), a.granted(1, 7n), b.ask(2), b.granted(3, second)];
    expect(count("I3", grants(8n))).toBe(0);
    expect(count("I3", grants(7n))).toBe(1);
    expect(count("I3", grants(6n))).toBe(1);
  });

  it("may stay where the same client's release had failed", () => {
    const again = of("a", 4);
    expect(count("I3", [a.ask(0), a.granted(1, 7n), a.release(2), again.ask(3), again.granted(4, 7n)])).toBe(
      0,
    );
    expect(count("I3", [a.ask(0), a.granted(1, 7n), again.ask(3), again.granted(4, 7n)])).toBe(1);
  });
});

describe("the shared counter", () => {
  it("tells a write that comes after one of a later holder", () => {
    expect(count("I4", [...overtaken, a.read(20, 0), b.write(210, 0, 1), a.write(220, 1, 1)])).toBe(1);
    const inOrder = [a.read(80, 0), a.write(90, 0, 1), b.read(205, 1), b.write(210, 1, 2)];
    expect(count("I4", [...overtaken, ...inOrder])).toBe(0);
  });

  it("tells a write that covers another", () => {
    expect(count("I5", [...overtaken, b.write(210, 0, 1), a.write(220, 1, 1)])).toBe(1);
    expect(count("I5", [...overtaken, b.write(210, 0, 1), a.write(220, 1, 2)])).toBe(0);
  });
});

describe("the order of service", () => {
  const passed = [a.ask(0), b.ask(150), b.granted(200, 9n), b.release(210), a.granted(220, 8n)];

  it("is broken by who is served before an earlier one", () => {
    expect(judged("I6", passed).violations).toHaveLength(1);
    const withoutTokens = passed.map((line) => ({ ...line, token: undefined }) as unknown as Line);
    expect(judged("I6", withoutTokens).violations).toHaveLength(1);
  });

  it("is open between two who asked at once", () => {
    const tie = [a.ask(0), b.ask(50), b.granted(200), b.release(210), a.granted(220)];
    expect(judged("I6", tie).violations).toHaveLength(0);
  });

  it("is only counted where nobody promised it, and not judged under faults", () => {
    expect(judged("I6", passed, false)).toMatchObject({ lacks: "no order promised", checks: 2 });
    expect(judged("I6", [...passed, ...fault("none", "a", 0, 1)])).toEqual({ checks: 0, violations: [] });
  });
});

describe("a free lock", () => {
  const waiting = [a.ask(0), a.granted(10), a.release(100), b.ask(50)];

  it("must not stay free for more than two TTLs and five seconds while somebody asks", () => {
    expect(lengths("I7", [...waiting, b.granted(9_200)])).toEqual([9_100]);
    expect(count("I7", [...waiting, b.granted(9_000)])).toBe(0);
  });

  it("must be found in the end", () => {
    expect(lengths("I7", [...waiting, b.refused(20_050, true)])).toEqual([19_950]);
  });

  it("may stay free while a fault hits all that ask", () => {
    expect(count("I7", [...waiting, ...fault("hinders", "b", 200, 9_000), b.granted(9_900)])).toBe(0);
    expect(count("I7", [...waiting, ...fault("none", "b", 200, 9_000), b.granted(9_900)])).toBe(1);
  });

  it("is not found by an acquire that ends with an error for no reason", () => {
    expect(count("I7", [...waiting, b.refused(500, false)])).toBe(1);
    expect(count("I7", [...waiting, ...fault("hinders", "b", 200, 300), b.refused(500, false)])).toBe(0);
    expect(count("I7", [...waiting, b.refused(500, true)])).toBe(0);
    expect(count("I7", [...waiting, { k: "close", t: at(400), p: "b" }, b.refused(500, false)])).toBe(0);
  });
});

it("a time limit that is said to be over long before is told", () => {
  expect(lengths("I11", [a.ask(0, 1000), a.refused(200, true)])).toEqual([200]);
  expect(count("I11", [a.ask(0, 1000), a.refused(950, true)])).toBe(0);
  expect(count("I11", [a.ask(0, 1000), a.refused(200, false)])).toBe(0);
});

it("a key that is left behind is told, also when its client has closed", () => {
  const left = (when: "idle" | "closed", keys: string[]): Line => ({
    k: "left",
    t: at(1),
    p: "stage",
    when,
    keys,
  });
  expect(judged("I8", [left("idle", ["n/1"]), left("closed", [])]).violations).toHaveLength(1);
  expect(judged("I8", [left("idle", []), left("closed", [])])).toEqual({ checks: 2, violations: [] });
});

it("a process that ends by itself is told", () => {
  expect(count("crash", [{ k: "crash", t: at(1), p: "a", err: "ended by itself (1)" }])).toBe(1);
});

describe("a stall of the machine", () => {
  const stall = (t: number, ms: number): Line => ({ k: "stall", t: at(t), p: "a", ms });
  const stallOf = (lines: Line[]) => longestStall(bookOf(lines, { ttlMs: TTL_MS, queues: true }));

  it("counts for a process that was in use", () => {
    expect(stallOf([a.ask(0), a.granted(10), stall(800, 300), stall(900, 150)])).toBe(300);
  });

  it("does not count while the process starts, or was stopped by us", () => {
    expect(stallOf([a.ask(0), stall(500, 300), a.granted(600)])).toBe(0);
    expect(stallOf([a.ask(0), a.granted(10), ...fault("stops", "a", 100, 700), stall(710, 600)])).toBe(0);
  });
});
