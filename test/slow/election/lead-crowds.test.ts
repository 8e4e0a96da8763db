import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";
import { lead, Mutex, Session } from "../../../src/index.js";
import { LeadCrew } from "../../support/programs/lead-crew.js";
import { observe } from "../../support/clients/observer.js";
import { crowdOf } from "../../support/fixtures/scale.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const BUILD = fileURLToPath(new URL("../../../scripts/build.js", import.meta.url));
const TTL_SECONDS = 2;
const CANDIDATES = crowdOf(50, 10);
const RESTARTS = crowdOf(20, 6);

const two = twoSessions(20);
/** Includes the start of processes. */
const PATIENCE = { timeout: 30_000 };
const queued = (name: string, count: number) =>
  expect.poll(() => two.places(name), PATIENCE).toHaveLength(count);
beforeAll(() => void execFileSync(process.execPath, [BUILD], { timeout: 120_000 }), 130_000);

const ms = (from: bigint, to: bigint) => Number(to - from) / 1e6;
const median = (values: readonly number[]) => [...values].sort((a, b) => a - b)[values.length >> 1]!;
const crew = (name: string, candidates: number, ttlSeconds: number, drainMs: number) =>
  new LeadCrew([two.etcd.endpoints.join(), name, ...[candidates, ttlSeconds, drainMs].map(String)]);

describe(`of ${4 * CANDIDATES} candidates in 4 processes`, { timeout: 60_000 }, () => {
  test("one of another process works within 2 s of the end of the dead ones' leases, when the leader's is killed -9", async () => {
    const name = "crowd/killed";
    using server = await observe(two.etcd.member.endpoint, `${name}/`);
    await using processes = crew(name, CANDIDATES, TTL_SECONDS, 0);
    for (let n = 0; n < 4; n++) processes.start();
    await queued(name, 4 * CANDIDATES);
    const first = await processes.moment(({ what }) => what === "begin");

    const killedAt = process.hrtime.bigint();
    await processes.end(first.pid, "SIGKILL");
    const next = await processes.moment(({ what, pid }) => what === "begin" && pid !== first.pid);

    // Its predecessors in the queue were the leader and other candidates of the killed process.
    const before = server.seen.filter(({ type, create }) => type === "DELETE" && create < next.fence);
    const lastEnd = before.reduce((last, { at }) => (at > last ? at : last), 0n);
    expect(before.length).toBeGreaterThan(0);
    expect(before.find(({ create }) => create === first.fence)).toBeDefined();
    expect(ms(lastEnd, next.at)).toBeLessThan(2000);
    expect(ms(killedAt, next.at)).toBeGreaterThan(0);
    const begun = processes.moments.filter(({ what }) => what === "begin");
    expect(begun).toEqual([first, next]);
  });
});

describe("a hand-over", () => {
  test("from the end of one service's work to the begin of the next one's costs less than 3 of a mutex", async () => {
    const name = "crowd/hand-over";
    const rounds = 15;
    const sessions = await Promise.all([1, 2].map(() => Session.open(two.cluster, { ttlSeconds: 20 })));
    const mutexes = sessions.map((session) => new Mutex(session, `${name}/mutex`));
    const ofMutex: number[] = [];
    let lock = await mutexes[0]!.lock();
    for (let n = 1; n <= rounds; n++) {
      const waiting = mutexes[n % 2]!.lock();
      await queued(`${name}/mutex`, 2);
      const begin = process.hrtime.bigint();
      void lock.release();
      lock = await waiting;
      ofMutex.push(ms(begin, process.hrtime.bigint()));
    }
    await lock.release();

    const stop = new AbortController();
    const ofLead: number[] = [];
    let ended = 0n;
    const places = rounds + 1;
    let go = () => {};
    const all = new Promise<void>((resolve) => (go = resolve));
    const work = async () => {
      await all;
      if (ended > 0n) ofLead.push(ms(ended, process.hrtime.bigint()));
      ended = process.hrtime.bigint();
    };
    const services = Array.from({ length: places }, () =>
      lead(two.cluster, `${name}/lead`, work, { ttlSeconds: 20, signal: stop.signal }),
    );
    await queued(`${name}/lead`, places);
    go();
    await expect.poll(() => ofLead.length, PATIENCE).toBeGreaterThanOrEqual(rounds);
    stop.abort();
    await Promise.all(services);

    expect(median(ofLead.slice(0, rounds))).toBeLessThan(3 * median(ofMutex));
    for (const session of sessions) await session.close();
  });
});

describe(`${RESTARTS} rolling restarts of 3 replicas under load`, { timeout: 90_000 }, () => {
  test("let no two work at once, and no gap in the work be longer than a third of the TTL", async () => {
    const name = "crowd/rolling";
    const ttlSeconds = 20;
    const drainMs = 50;
    await using processes = crew(name, 1, ttlSeconds, drainMs);
    const replicas = [processes.start(), processes.start(), processes.start()];
    await queued(name, 3);
    const load = new AbortController();
    const loaded = putUntil(load.signal);
    const stops: bigint[] = [];

    for (let n = 0; n < RESTARTS; n++) {
      const begun = processes.moments.filter(({ what }) => what === "begin").length;
      const leader = (await processes.moment(({ what, pid }) => what === "begin" && replicas.includes(pid)))
        .pid;
      replicas.splice(replicas.indexOf(leader), 1, processes.start());
      // The replacement starts first: otherwise its start would be measured.
      await queued(name, 4);
      stops.push(process.hrtime.bigint());
      expect(await processes.end(leader, "SIGTERM")).toBe(0);
      await processes.moment((moment) => {
        const begins = processes.moments.filter(({ what }) => what === "begin");
        return begins.length > begun && moment === begins.at(-1);
      });
    }
    load.abort();
    await loaded;

    const moments = [...processes.moments].sort((a, b) => (a.at < b.at ? -1 : 1));
    // Begins and ends alternate, each pair with one fence: no two terms overlap.
    expect(moments.map(({ what }) => what)).toEqual(moments.map((_, i) => (i % 2 === 0 ? "begin" : "end")));
    const begins = moments.filter(({ what }) => what === "begin");
    const ends = moments.filter(({ what }) => what === "end");
    expect(ends.map(({ fence }) => fence)).toEqual(begins.slice(0, -1).map(({ fence }) => fence));
    expect(begins).toHaveLength(RESTARTS + 1);
    const gaps = ends.map(({ at }, i) => ms(at, begins[i + 1]!.at));
    const untilNext = stops.map((at, i) => ms(at, begins[i + 1]!.at));
    // Waiting for a lease to expire would take at least nine tenths of the TTL.
    expect(Math.max(...gaps)).toBeLessThan((ttlSeconds * 1000) / 3);
    expect(Math.max(...untilNext)).toBeLessThan(drainMs + (ttlSeconds * 1000) / 3);
  });
});

/** Other clients' writes. */
async function putUntil(signal: AbortSignal): Promise<void> {
  for (let n = 0; !signal.aborted; n++)
    await two.etcd.member.gateway("/v3/kv/put", { key: Buffer.from(`load/${n % 100}`).toString("base64") });
}
