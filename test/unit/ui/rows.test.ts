// The rows and histories of the page, and what its streams send, on a clock that the test moves.
import { describe, expect, test } from "vitest";
import type { Clock } from "../../../src/async/clock.js";
import type { EventStream } from "../../../src/ui/event-stream.js";
import { Overview } from "../../../src/ui/overview.js";
import type { ChangeMessage, FullMessage, Row } from "../../../src/ui/protocol.js";
import { Rows } from "../../../src/ui/rows.js";
import type { QueueView } from "../../../src/ui/source.js";

const START = Date.parse("2026-11-23T00:00:00Z");

/** Time passes by `pass()` alone. */
class Time {
  ms = 0;
  #timers: { readonly at: number; readonly run: () => void }[] = [];
  readonly clock = {
    monotonic: () => this.ms,
    date: () => new Date(START + this.ms),
    after: (delayMs: number, run: () => void) => {
      const timer = { at: this.ms + delayMs, run };
      this.#timers.push(timer);
      return { cancel: () => (this.#timers = this.#timers.filter((each) => each !== timer)) };
    },
  } as unknown as Clock;

  pass(ms: number): void {
    const end = this.ms + ms;
    for (;;) {
      const next = this.#timers.sort((a, b) => a.at - b.at)[0];
      if (next === undefined || next.at > end) break;
      this.#timers.shift();
      this.ms = next.at;
      next.run();
    }
    this.ms = end;
  }
}

class FakeStream {
  ready = true;
  readonly sent: { readonly event: string; readonly data: FullMessage & ChangeMessage }[] = [];
  end = (): void => {};

  send(event: string, json: string): void {
    this.sent.push({ event, data: JSON.parse(json) as FullMessage & ChangeMessage });
  }

  onClose(run: () => void): void {
    this.end = run;
  }
}

function scene() {
  const time = new Time();
  const changes: (string | undefined)[] = [];
  const rows = new Rows(time.clock, (name) => {
    changes.push(name);
    overview.changed(name);
  });
  const overview = new Overview(rows, { clock: time.clock, prefix: "" });
  const open = (): FakeStream => {
    const stream = new FakeStream();
    overview.add(stream as unknown as EventStream, false);
    return stream;
  };
  return { time, rows, changes, open };
}

const view = (name: string, revision?: bigint, waiters = 0): QueueView => ({
  ...{ name, kind: "mutex", waiters },
  holders:
    revision === undefined
      ? []
      : [{ key: `${name}/${revision}`, owner: `p${revision}`, since: new Date(START - 60_000), revision }],
});
const rowOf = (rows: Rows, name: string): Row | undefined => {
  const json = rows.json(name);
  return json === undefined ? undefined : (JSON.parse(json) as Row);
};

describe("a row", () => {
  test("of a holder that was there first counts from when it joined, of a later one from its grant", () => {
    const { time, rows } = scene();
    rows.changed([view("a", 1n)]);
    const first = rowOf(rows, "a");
    time.pass(5000);
    rows.changed([view("a", 2n), view("b", 3n)]);

    expect(first?.since).toBe(START - 60_000);
    expect([rowOf(rows, "a")?.since, rowOf(rows, "b")?.since]).toEqual([START + 5000, START + 5000]);
    expect(rows.history("a")).toMatchObject([
      { holder: "p1", fromIsJoin: true, to: START + 5000, end: "unknown" },
      { holder: "p2", fromIsJoin: false, from: START + 5000, to: null, end: null },
    ]);
  });

  test("stays for five minutes when it is free, with its kind and its history", () => {
    const { time, rows } = scene();
    rows.changed([view("a", 1n)]);
    rows.changed([view("a")]);
    time.pass(299_000);
    rows.changed([view("b", 2n)]);
    const before = rowOf(rows, "a");
    time.pass(2000);
    rows.changed([view("b", 3n)]);

    expect(before).toMatchObject({ kind: "mutex", holder: null, since: null, holders: 0 });
    expect([rowOf(rows, "a"), rows.history("a")]).toEqual([undefined, []]);
  });

  test("is not made for a name that was never seen with an entry, and free ones are limited", () => {
    const { rows } = scene();
    rows.changed([view("never")]);
    for (let n = 0; n < 1500; n++) {
      rows.changed([view(`q${n}`, 1n)]);
      rows.changed([view(`q${n}`)]);
    }

    expect(rowOf(rows, "never")).toBeUndefined();
    expect([...rows.names()]).toHaveLength(1000);
    expect(rowOf(rows, "q499")).toBeUndefined();
    expect(rowOf(rows, "q1499")).toBeDefined();
  });

  test.each(["before", "after"])("counts a lease that ended, told %s the change of the holder", (when) => {
    const { rows } = scene();
    const ended = (): void => rows.ended({ name: "a", revision: 1n, end: "lease ended" });
    rows.changed([view("a", 1n)]);
    if (when === "before") ended();
    rows.changed([view("a", 2n)]);
    if (when === "after") ended();
    ended();
    rows.changed([view("a", 3n)]);
    rows.ended({ name: "a", revision: 2n, end: "released" });

    expect(rows.history("a").map(({ end }) => end)).toEqual(["lease ended", "released", null]);
    expect(rowOf(rows, "a")?.losses).toBe(1);
  });

  test("has the latest 60 holds", () => {
    const { rows } = scene();
    for (let n = 1n; n <= 100n; n++) rows.changed([view("a", n)]);

    expect(rows.history("a")).toHaveLength(60);
    expect(rows.history("a").at(-1)?.holder).toBe("p100");
  });
});

describe("a stream", () => {
  test("gets all rows, then only those that change, several changes at once", () => {
    const { time, rows, open } = scene();
    rows.changed([view("a", 1n), view("b", 2n)]);
    const stream = open();
    rows.changed([view("a", 3n)]);
    rows.changed([view("a", 4n, 2)]);
    time.pass(1000);

    expect(
      stream.sent.map(({ event, data }) => [event, data.rows.map(({ name, holder }) => `${name} ${holder}`)]),
    ).toEqual([
      ["full", ["a p1", "b p2"]],
      ["change", ["a p4"]],
    ]);
  });

  test("that is slow skips to the latest state of each row, and misses none at the end", () => {
    const { time, rows, open } = scene();
    const stream = open();
    stream.ready = false;
    for (let n = 1n; n <= 500n; n++) {
      rows.changed([view(`q${n % 7n}`, n)]);
      time.pass(100);
    }
    expect(stream.sent).toHaveLength(1);
    stream.ready = true;
    time.pass(1000);

    expect(stream.sent).toHaveLength(2);
    const seen = new Map(stream.sent[1]?.data.rows.map(({ name, holder }) => [name, holder]));
    expect(seen.size).toBe(7);
    for (const [name, holder] of seen) expect(holder).toBe(rowOf(rows, name)?.holder);
  });

  test("hears of a problem and of its end, and of rows that are gone", () => {
    const { time, rows, open } = scene();
    rows.problem(undefined);
    rows.changed([view("a", 1n)]);
    rows.changed([view("a")]);
    const stream = open();
    rows.problem("etcd does not answer");
    time.pass(200);
    rows.problem(undefined);
    time.pass(301_000);
    rows.changed([view("b", 2n)]);
    time.pass(200);

    expect(stream.sent.map(({ data: { problem, gone = [] } }) => [problem, gone])).toEqual([
      [null, []],
      ["etcd does not answer", []],
      [null, []],
      [null, ["a"]],
    ]);
  });

  test("that has ended leaves nothing to do", () => {
    const { time, rows, open } = scene();
    const stream = open();
    stream.end();
    rows.changed([view("a", 1n)]);
    time.pass(1000);

    expect(stream.sent).toHaveLength(1);
  });
});
