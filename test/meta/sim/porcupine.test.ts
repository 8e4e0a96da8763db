import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import type { Run, ServerEvent, Step } from "../../lab/runner/history.js";
import { readRun } from "../../lab/runner/journal.js";
import { exportRun, linesOf } from "../../sim/porcupine/export.js";
import { HAND_MADE } from "../../sim/porcupine/hand-made.js";
import { sources } from "../../sim/run/build.js";
import { runSim } from "../../sim/run/sim-run.js";
import { swarmOf } from "../../sim/run/swarm.js";

const LOCK = "sim/lock/n1";
const KEY = `${LOCK}/1a`;
const SETTING = { ttlSeconds: 5, locks: "sim/lock/", registers: "sim/register/" };

type Loose = Record<string, unknown>;

/** Its times and revisions are numbers. */
function runOf(history: readonly Loose[], server: readonly Loose[]): Run {
  const big = (value: unknown) => BigInt(value as number);
  const steps = history.map(({ t, token, rev, ...step }) => ({
    ...{ p: "w0.0", id: 1, lock: LOCK, ...step, t: big(t) },
    ...(token !== undefined && { token: big(token) }),
    ...(rev !== undefined && { rev: big(rev) }),
  }));
  const events = server.map(({ rev, create, tSeen, ...event }) => ({
    ...{ key: KEY, lease: "1a", value: `{"owner":"w0.0/0"}`, ...event },
    ...{ rev: big(rev), create: big(create), tSeen: big(tSeen) },
  }));
  return {
    history: steps as unknown as Step[],
    server: events as unknown as ServerEvent[],
    setting: SETTING,
  };
}

const START = { t: 0, k: "stall", ms: 0 };
const INVOKED = { t: 10, k: "invoke", f: "acquire", owner: "w0.0/0" };
const GRANTED = { t: 20, k: "ok", f: "acquire", held: true, token: 7, key: KEY };
const PUT = { rev: 7, type: "PUT", create: 7, tSeen: 15 };
const DELETED = { rev: 9, type: "DELETE", create: 7, tSeen: 60 };
const RELEASE = { t: 50, k: "invoke", f: "release" };

const shortOf = (run: Run, dated: "exactly" | "when seen" = "exactly") =>
  exportRun(run, dated).map(({ object, op, from, to, fence, value, accepted }) => {
    const more = [fence, value, accepted].filter((each) => each !== undefined).join();
    return `${object} ${op} ${more} [${from}, ${to ?? "?"}]`;
  });

describe("the export for Porcupine", () => {
  it("has a hold from its call to the deletion of its key, and the first and the last reading that it holds", () => {
    const claims = [
      { t: 30, k: "claim", token: 7, held: true },
      { t: 35, k: "claim", token: 7, held: true },
      { t: 40, k: "claim", token: 7, held: false },
    ];
    const run = runOf([START, INVOKED, GRANTED, ...claims, RELEASE], [PUT, DELETED]);
    expect(shortOf(run)).toEqual([
      ...["mutex acquire 7 [10, 20]", "mutex claim 7 [20, 20]", "mutex claim 7 [35, 35]"],
      "mutex end 7 [60, 60]",
    ]);
  });

  it("has no end of a hold whose key was not deleted", () => {
    expect(shortOf(runOf([START, INVOKED, GRANTED], [PUT]))).not.toContainEqual(
      expect.stringMatching(/ end /),
    );
  });

  it("shows that a grant names no key of etcd", () => {
    const [acquire] = exportRun(runOf([START, INVOKED, GRANTED], []), "exactly");
    expect(acquire).toMatchObject({ op: "acquire", placed: false });
  });

  it("takes the end of the key that a grant names, also if its fence is a different revision", () => {
    const run = runOf([START, INVOKED, { ...GRANTED, token: 8, held: false }], [PUT, DELETED]);
    expect(shortOf(run)).toEqual(["mutex acquire 8 [10, 20]", "mutex end 8 [60, 60]"]);
  });

  it("leaves out a call that was not granted", () => {
    expect(
      shortOf(runOf([START, INVOKED, { ...GRANTED, k: "fail", err: "ABORTED" }], [PUT, DELETED])),
    ).toEqual([]);
  });

  it("leaves out what a holder claims until it can know that a fault took its key", () => {
    const taking = { k: "nemesis", fault: "delete-key", effect: "takes-place", target: KEY, took: [9n] };
    const claims = [70, 90_000_000_000].map((t) => ({ t, k: "claim", token: 7, held: true }));
    const faults = [
      { ...taking, t: 59, on: true },
      { ...taking, t: 61, on: false },
    ];
    const run = runOf([START, INVOKED, GRANTED, ...faults, ...claims], [PUT, DELETED]);
    expect(shortOf(run).filter((line) => line.includes("claim"))).toEqual([
      ...["mutex claim 7 [20, 20]", "mutex claim 7 [90000000000, 90000000000]"],
    ]);
  });

  it("has a loss only if etcd is said to have lost the key", () => {
    const ends = ["expired", "deleted"].map((reason, n) => ({ t: 70 + n, k: "end", token: 7, reason }));
    const run = runOf([START, INVOKED, GRANTED, ...ends], [PUT, DELETED]);
    expect(shortOf(run)).toContain("mutex gone 7 [71, 71]");
    expect(shortOf(run)).not.toContain("mutex gone 7 [70, 70]");
  });

  it("has reads from the previous step of their hold on, and writes with their fences", () => {
    const use = [
      { t: 25, k: "claim", token: 7, held: true },
      { t: 30, k: "ok", f: "read", seq: 3, rev: 7 },
      { t: 32, k: "invoke", f: "write", write: "w0.0#1/1" },
      { t: 34, k: "ok", f: "write", write: "w0.0#1/1", seq: 4, rev: 8 },
    ];
    const lines = shortOf(runOf([START, INVOKED, GRANTED, ...use], [PUT, DELETED]));
    expect(lines.filter((line) => line.startsWith("register"))).toEqual([
      ...["register read 3 [25, 30]", "register write 7,4,true [32, 34]", "register end 7 [60, 60]"],
    ]);
  });

  it.each([[[]], [[{ t: 40, k: "info", f: "write", write: "x", seq: 4 }]]])(
    "leaves a write without a known answer open: %j",
    (outcome) => {
      const use = [
        { t: 30, k: "ok", f: "read", seq: 3, rev: 7 },
        { t: 32, k: "invoke", f: "write", write: "x" },
      ];
      const run = runOf([START, INVOKED, GRANTED, ...use, ...outcome], [PUT]);
      expect(shortOf(run)).toContain("register write 7,4 [32, ?]");
    },
  );

  it("names a semaphore by the limits in its queue, and an rwlock by its shared holds", () => {
    const permit = { ...PUT, value: `{"owner":"w0.0/0","permits":3}` };
    const acquired = [START, INVOKED, { ...GRANTED, shared: true }];
    const [semaphore] = exportRun(runOf(acquired, [permit]), "exactly");
    expect(semaphore).toMatchObject({ object: "semaphore", permits: 3, shared: true });
    const [rwlock] = exportRun(runOf(acquired, [PUT]), "exactly");
    expect(rwlock).toMatchObject({ object: "rwlock", shared: true });
  });
});

describe("the export of a run of the lab", () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-porcupine-"));
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it("places a deletion between the latest call that saw a lower revision and its observation", () => {
    const other = { id: 2, lock: "sim/lock/n2" };
    const run = runOf(
      [
        ...[START, INVOKED, GRANTED],
        ...[
          { ...INVOKED, ...other, t: 45 },
          { ...GRANTED, ...other, t: 47, token: 8, key: "sim/lock/n2/1a" },
        ],
        ...[
          { ...INVOKED, id: 3, t: 57 },
          { ...GRANTED, id: 3, t: 65, token: 10, key: `${LOCK}/2b` },
        ],
      ],
      [PUT, DELETED],
    );
    const text = (steps: readonly object[]) => steps.map((step) => `${plain(step)}\n`).join("");
    writeFileSync(path.join(folder, "run.jsonl"), text(run.history));
    writeFileSync(path.join(folder, "server.jsonl"), text(run.server));
    writeFileSync(path.join(folder, "setting.json"), JSON.stringify(SETTING));
    expect(shortOf(readRun(folder), "when seen")).toContain("mutex end 7 [45, 60]");
  });
});

const plain = (step: object) =>
  JSON.stringify(step, (_, value: unknown) => (typeof value === "bigint" ? String(value) : value));

describe("the export of a simulated run", () => {
  it("is the same each time, and its lines end with the order to check", async () => {
    const build = await sources();
    const options = { ...swarmOf("8"), build, calls: 20 };
    const linesOfSeed = async () => linesOf("8", exportRun((await runSim(options)).run, "exactly"));
    const lines = await linesOfSeed();
    expect(lines).toBe(await linesOfSeed());
    expect(lines.endsWith('{"check":"8"}\n')).toBe(true);
    expect(lines).toContain('"op":"end"');
  });
});

describe("the histories made by hand", () => {
  it("have legal and illegal ones of each model", () => {
    const kinds = HAND_MADE.map(({ operations, legal }) => `${operations[0]?.object} ${legal}`);
    const models = ["mutex", "rwlock", "semaphore", "register"];
    expect(new Set(kinds)).toEqual(new Set(models.flatMap((model) => [`${model} true`, `${model} false`])));
  });
});
