// The rows and histories of the page, and what its streams send, on a clock that the test moves.
import { describe, expect, test } from "vitest";
import type { Clock } from "../../../../src/base/util/clock.js";
import type { EventStream } from "../../../../src/tools/ui/event-stream.js";
import { Overview, Rows } from "../../../../src/tools/ui/overview.js";
import type { ChangeMessage, FullMessage, Row } from "../../../../src/tools/ui/protocol.js";
import { Store } from "../../../../src/tools/ui/page/store.js";
import type { QueueView } from "../../../../src/tools/ui/source.js";

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
    afterPendingEvents: (run: () => void) => this.clock.after(0, run),
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
  /** Whether the reader takes at once what it is sent. */
  takes = true;
  ready = true;
  #drained = (): void => {};
  readonly sent: { readonly event: string; readonly data: FullMessage & ChangeMessage }[] = [];
  end = (): void => {};

  send(event: string, json: string): void {
    expect(this.ready).toBe(true);
    this.ready = this.takes;
    this.sent.push({ event, data: JSON.parse(json) as FullMessage & ChangeMessage });
  }

  /** The reader takes what it was sent. */
  take(): void {
    this.ready = true;
    this.#drained();
  }

  onDrain(run: () => void): void {
    this.#drained = run;
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
  const overview = new Overview(rows, { clock: time.clock, prefix: "", cluster: { hosts: ["http://a:1"] } });
  const open = (takes = true): FakeStream => {
    const stream = new FakeStream();
    stream.takes = takes;
    overview.add(stream as unknown as EventStream, false);
    return stream;
  };
  return { time, rows, changes, open };
}

const view = (name: string, revision?: bigint, waiters = 0): QueueView => ({
  ...{ name, kind: "mutex", waiters, grants: undefined },
  holders:
    revision === undefined
      ? []
      : [
          {
            ...{ key: `${name}/${revision}`, owner: `p${revision}`, value: undefined, revision },
            since: new Date(START - 60_000),
          },
        ],
});
const rowOf = (rows: Rows, name: string): Row | undefined => {
  const json = rows.json(name);
  return json === undefined ? undefined : (JSON.parse(json) as Row);
};

describe("a row", () => {
  test("of a holder that was there first counts from when it joined, of a later one from its grant", () => {
    const { time, rows } = scene();
    rows.changed([view("a", 1n)], 0);
    const first = rowOf(rows, "a");
    time.pass(5000);
    rows.changed([view("a", 2n), view("b", 3n)], 0);

    expect(first?.since).toBe(START - 60_000);
    expect([rowOf(rows, "a")?.since, rowOf(rows, "b")?.since]).toEqual([START + 5000, START + 5000]);
    expect(rows.history("a")).toMatchObject([
      { holder: "p1", fromIsJoin: true, to: START + 5000, end: "unknown" },
      { holder: "p2", fromIsJoin: false, from: START + 5000, to: null, end: null },
    ]);
  });

  test("stays for five minutes when it is free, with its kind and its history", () => {
    const { time, rows } = scene();
    rows.changed([view("a", 1n)], 0);
    rows.changed([view("a")], 0);
    time.pass(299_000);
    rows.changed([view("b", 2n)], 0);
    const before = rowOf(rows, "a");
    time.pass(2000);
    rows.changed([view("b", 3n)], 0);

    expect(before).toMatchObject({ kind: "mutex", holder: null, since: null, holders: 0 });
    expect([rowOf(rows, "a"), rows.history("a")]).toEqual([undefined, []]);
  });

  test("is not made for a name that was never seen with an entry, and free ones are limited", () => {
    const { rows } = scene();
    rows.changed([view("never")], 0);
    for (let n = 0; n < 1500; n++) {
      rows.changed([view(`q${n}`, 1n)], 0);
      rows.changed([view(`q${n}`)], 0);
    }

    expect(rowOf(rows, "never")).toBeUndefined();
    expect(Array.from({ length: 1500 }, (_, n) => rows.has(`q${n}`)).filter(Boolean)).toHaveLength(1000);
    expect(rowOf(rows, "q499")).toBeUndefined();
    expect(rowOf(rows, "q1499")).toBeDefined();
  });

  test.each(["before", "after"])("counts a lease that ended, told %s the change of the holder", (when) => {
    const { rows } = scene();
    const ended = (): void => rows.ended({ name: "a", revision: 1n, end: "lease ended" });
    rows.changed([view("a", 1n)], 0);
    if (when === "before") ended();
    rows.changed([view("a", 2n)], 0);
    if (when === "after") ended();
    ended();
    rows.changed([view("a", 3n)], 0);
    rows.ended({ name: "a", revision: 2n, end: "released" });

    expect(rows.history("a").map(({ end }) => end)).toEqual(["lease ended", "released", null]);
    expect(rowOf(rows, "a")?.losses).toBe(1);
  });

  test("counts its hand-overs by the minute for an hour, also when the board begins again", () => {
    const { time, rows } = scene();
    const look = (grants: number | undefined, all: number): void =>
      rows.changed([{ ...view("a", 1n), grants }], all);
    look(3, 4);
    look(undefined, 4);
    time.pass(120_000);
    look(5, 9);
    look(2, 1);

    expect(rows.perMinute("a").slice(-3)).toEqual([3, 0, 4]);
    expect(rows.perMinute().slice(-3)).toEqual([4, 0, 6]);
    time.pass(59 * 60_000);
    expect(rows.perMinute("a")).toEqual([4, ...Array.from({ length: 59 }, () => 0)]);
    time.pass(60_000);
    expect(rows.perMinute("a")).not.toContain(4);
  });

  test("has the latest 60 holds", () => {
    const { rows } = scene();
    for (let n = 1n; n <= 100n; n++) rows.changed([view("a", n)], 0);

    expect(rows.history("a")).toHaveLength(60);
    expect(rows.history("a").at(-1)?.holder).toBe("p100");
  });
});

describe("a stream", () => {
  test("gets all rows, then only those that change, several changes at once", () => {
    const { time, rows, open } = scene();
    rows.changed([view("a", 1n), view("b", 2n)], 0);
    const stream = open();
    rows.changed([view("a", 3n)], 0);
    rows.changed([view("a", 4n, 2)], 0);
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
    const stream = open(false);
    for (let n = 1n; n <= 500n; n++) {
      rows.changed([view(`q${n % 7n}`, n)], 0);
      time.pass(100);
    }
    expect(stream.sent).toHaveLength(1);
    stream.take();
    time.pass(1000);

    expect(stream.sent).toHaveLength(2);
    const seen = new Map(stream.sent[1]?.data.rows.map(({ name, holder }) => [name, holder]));
    expect(seen.size).toBe(7);
    for (const [name, holder] of seen) expect(holder).toBe(rowOf(rows, name)?.holder);
  });

  test("gets a problem, its end, and the rows that are gone", () => {
    const { time, rows, open } = scene();
    rows.problem(undefined);
    rows.changed([view("a", 1n)], 0);
    rows.changed([view("a")], 0);
    const stream = open();
    rows.problem("etcd does not answer");
    time.pass(200);
    rows.problem(undefined);
    time.pass(301_000);
    rows.changed([view("b", 2n)], 0);
    time.pass(200);

    expect(stream.sent.map(({ data: { problem, gone = [] } }) => [problem, gone])).toEqual([
      [null, []],
      ["etcd does not answer", []],
      [null, []],
      [null, ["a"]],
    ]);
  });

  test("gets thousands of rows in pages, each when the reader has taken the one before", () => {
    const { time, rows, open } = scene();
    rows.changed(
      Array.from({ length: 2000 }, (_, n) => view(`q${n}-${"x".repeat(500)}`, 1n)),
      0,
    );
    const stream = open(false);
    for (let n = 0; stream.sent.at(-1)?.data.more; n++) {
      time.pass(1000);
      expect(stream.sent).toHaveLength(n + 1);
      stream.take();
      time.pass(1);
    }

    expect(stream.sent.map(({ event }) => event)).toEqual(["full", ...Array<string>(18).fill("change")]);
    for (const { data } of stream.sent) expect(JSON.stringify(data).length).toBeLessThan(70_000);
    expect(new Set(stream.sent.flatMap(({ data }) => data.rows.map(({ name }) => name))).size).toBe(2000);
  });

  test.each([1, 2, 3])(
    "shows what there is at the end, whenever its reader takes something and whatever changes (seed %i)",
    (seed) => {
      const { time, rows, open } = scene();
      let state = seed;
      const random = (below: number) => (state = (state * 1103515245 + 12345) % 2147483648) % below;
      const readers = Array.from({ length: 4 }, () => ({ stream: open(false), store: new Store(), read: 0 }));
      const take = (reader: (typeof readers)[number]): void => {
        const { stream, store } = reader;
        for (const { event, data } of stream.sent.slice(reader.read))
          if (event === "full") store.fill(data);
          else store.change(data);
        reader.read = stream.sent.length;
        stream.take();
      };
      const pass = (names: readonly string[], revision: bigint): void => {
        rows.changed(
          names.map((name) => view(name, revision)),
          0,
        );
        rows.changed(
          names.map((name) => view(name)),
          0,
        );
      };
      for (let round = 1; round <= 100; round++) {
        const names = Array.from({ length: 40 }, () => `q${random(500)}-${"x".repeat(random(10) * 300)}`);
        rows.changed(
          names.map((name) => view(name, BigInt(round))),
          0,
        );
        if (round % 3 > 0) pass(names.slice(20), BigInt(round));
        // More names come and go than are remembered.
        const many = Array.from({ length: 12_000 }, (_, n) => `short-lived/${n}`);
        if (round === 50) pass(many, 50n);
        time.pass(random(5000));
        for (const reader of readers) if (random(10) === 0) take(reader);
      }
      for (let n = 0; n < 300; n++) {
        for (const reader of readers) take(reader);
        time.pass(200);
      }

      for (const { store, stream } of readers) {
        for (const [name, row] of store.rows) expect(row).toEqual(rowOf(rows, name));
        expect(store.isFilled).toBe(true);
        expect(stream.sent.filter(({ event }) => event === "full").length).toBeGreaterThan(1);
        expect(store.rows.size).toBe(readers[0]?.store.rows.size);
      }
    },
  );

  test("that has ended leaves nothing to do", () => {
    const { time, rows, open } = scene();
    const stream = open();
    stream.end();
    rows.changed([view("a", 1n)], 0);
    time.pass(1000);

    expect(stream.sent).toHaveLength(1);
  });
});
