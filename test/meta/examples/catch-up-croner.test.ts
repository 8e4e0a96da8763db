// An outage without a wait: replicas run, all are killed, and those that are started then have clocks that are 90 s ahead.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, once } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples, type Program } from "../../support/fixtures/examples.js";
import { SHIFT_DATE } from "../../support/programs/workers.js";

/** Longer than the grace that `missed: "none"` gives by default. */
const OUTAGE_MS = 90_000;

let etcd: EtcdCluster;
beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

/** The ticks that a program has begun, in order, as seconds. */
async function ticksOf(program: Program): Promise<number[]> {
  program.signal("SIGKILL");
  const { stdout } = await program.ended;
  return [...stdout.matchAll(/:(\S+Z) begun/g)].map(([, date = ""]) => Date.parse(date) / 1000);
}

/** What replicas have begun before and after the outage, and what etcd says of each tick, from the first one on. */
async function outage(job: string, missed: "all" | "last") {
  const env = { JOBS: job, SCHEDULE: "* * * * * *", WORK_MS: "0", MISSED: missed };
  await using examples = new Examples(etcd.endpoints, env);
  const start = (more: NodeJS.ProcessEnv) =>
    [1, 2].map(() => examples.start("catch-up-croner.js", { env: more }));
  const first = start({});
  await Promise.race(first.map((program) => program.says(" ended")));
  const before = await Promise.all(first.map(ticksOf));

  const ahead = `--import=${SHIFT_DATE} --import=data:text/javascript,shiftDate(${OUTAGE_MS})`;
  const second = start({ NODE_OPTIONS: `${process.env["NODE_OPTIONS"] ?? ""} ${ahead}` });
  // One tick that is not late shows that the outage is over.
  await Promise.race(second.map((program) => program.says(" begun, 0 s late")));
  const after = await Promise.all(second.map(ticksOf));
  await using cluster = connect({ hosts: etcd.endpoints });
  const told = [...(await once.history(cluster, `cron/${job}`, { limit: 1000 }))].reverse();
  return {
    begun: [...before, ...after],
    told: told.map(({ slot, state }) => ({ at: Number(slot) / 1000, state })),
  };
}

const sorted = (ticks: readonly number[]) => [...ticks].sort((x, y) => x - y);

describe("examples/catch-up-croner.js", { timeout: 90_000 }, () => {
  test("runs each tick of an outage, once and in order", async () => {
    const { begun, told } = await outage("all", "all");
    const [first] = told;
    // A replica that was killed may have been at a tick.
    const cut = told.filter(({ state }) => state === "running" || state === "lost").map(({ at }) => at);

    expect(told.map(({ at }) => at)).toEqual(told.map((_, n) => (first?.at ?? 0) + n));
    expect(told.length).toBeGreaterThan(OUTAGE_MS / 1000);
    expect(cut.length).toBeLessThan(4);
    for (const ticks of begun) expect(ticks).toEqual(sorted(ticks));
    const ended = told.map(({ at }) => at).filter((at) => !cut.includes(at));
    expect(sorted(begun.flat()).filter((at) => !cut.includes(at))).toEqual(ended);
  });

  test("runs the latest one only, with MISSED=last", async () => {
    const { begun, told } = await outage("last", "last");
    const missed = told.filter(({ state }) => state === "missed").map(({ at }) => at);
    const ran = begun.flat();

    expect(missed.length).toBeGreaterThan(OUTAGE_MS / 1000 - 5);
    expect(missed.filter((at) => ran.includes(at))).toEqual([]);
    expect(new Set(ran).size).toBe(ran.length);
    expect(Math.max(...ran)).toBeGreaterThan(Math.max(...missed));
  });
});
