// Leaders whose process stood still for longer than `withinMs`: what a look decides does not depend on which timer runs first.
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Cluster, connect, Election } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import { Leaders, type LeadersReport } from "../../support/programs/leaders.js";

const LEADERS = 10;
const WITHIN_MS = 1000;
const STILL_MS = 3 * WITHIN_MS;

let etcd: EtcdCluster;
let cluster: Cluster;
beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
}, 150_000);
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

const RENEWED = { renewal: "worker", maxStallMs: 60_000 } as const;
const WAYS = {
  "a block, and a thread that renews": { ttlSeconds: 5, options: RENEWED },
  "a block": { ttlSeconds: 30, options: {} },
  SIGSTOP: { ttlSeconds: 30, options: {} },
} as const;

/** Whom etcd has as the leaders: a client beside the process. */
const fencesOf = async (name: string) => {
  const elections = Array.from({ length: LEADERS }, (_, n) => new Election(cluster, `${name}/${n}`));
  const leaders = await Promise.all(elections.map((election) => election.leader()));
  return leaders.map((leader) => String(leader?.fence)).sort();
};
const heldBy = ({ states }: LeadersReport) => states.filter(({ held }) => held).length;
/** They lead in the order of their grants. */
const fences = ({ states }: LeadersReport) => states.map(({ fence }) => fence).sort();

async function stopped(leaders: Leaders): Promise<LeadersReport> {
  leaders.child.kill("SIGSTOP");
  await delay(STILL_MS);
  leaders.child.kill("SIGCONT");
  return leaders.tell("look");
}

describe.each(Object.entries(WAYS))(
  "%s, for three times withinMs",
  { timeout: 30_000 },
  (way, { ttlSeconds, options }) => {
    const start = (kind: string, lead: object) => {
      const name = `${kind}/${way}`;
      const given = { name, leaders: LEADERS, lead: { ...lead, withinMs: WITHIN_MS, ttlSeconds } };
      return Leaders.start({ hosts: etcd.endpoints, ...options }, given);
    };

    test.each(["asks etcd", "says true"])(
      "ends no term whose check %s when it can be made",
      async (healthy) => {
        const leaders = await start(healthy, { healthy });
        const first = way === "SIGSTOP" ? await stopped(leaders) : await leaders.tell(`block ${STILL_MS}`);
        // Each term has been asked several times since.
        const asked = first.checks + 4 * LEADERS;
        const last = await leaders.until((report) => report.checks >= asked || heldBy(report) < LEADERS);

        expect([heldBy(first), heldBy(last)]).toEqual([LEADERS, LEADERS]);
        expect(await fencesOf(`${healthy}/${way}`)).toEqual(fences(leaders.first));
      },
    );

    test("ends each term whose heartbeats were due in it, and a late one revives none", async () => {
      const leaders = await start("beats", {});
      const first = way === "SIGSTOP" ? await stopped(leaders) : await leaders.tell(`beat ${STILL_MS}`);

      expect(first.states.map(({ held, loss }) => [held, loss])).toEqual(
        leaders.first.states.map(() => [false, "unhealthy"]),
      );
      const isGone = async () => (await fencesOf(`beats/${way}`)).every((fence) => fence === "undefined");
      await expect.poll(isGone, { timeout: 10_000 }).toBe(true);
    });
  },
);
