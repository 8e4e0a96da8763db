// A process with `releaseDelayMs` is killed: all that shows the queue says that its holder is dead, and when the name is free by etcd's word.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inspect as textOf } from "node:util";
import { type Cluster, connect, inspect, list, Mutex, watchQueue } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { runCli, startCli } from "../../support/programs/cli.js";
import { Guarded } from "../../support/programs/guarded.js";

const DELAY_MS = 60_000;
const NAME = "dead/a";

let etcd: EtcdCluster;
let cluster: Cluster;
let waiting: Promise<unknown>;
/** The lease of the delay key that the dead process has left. */
let delayLease: bigint;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints, session: { owner: "the waiter" } });
  const session = { owner: "the dead", ttlSeconds: 10, releaseDelayMs: DELAY_MS };
  await using dying = await Guarded.start({ hosts: etcd.endpoints, guardian: true, session }, [NAME]);
  delayLease = dying.leases[0]! | 1n;
  waiting = new Mutex(cluster, NAME).lock();
  await places(3);
  await dying.kill();
  // The guardian revokes the lease of the process, and later the other one.
  await places(2);
}, 60_000);
afterAll(async () => {
  await etcd.member.gateway("/v3/lease/revoke", { ID: delayLease.toString() });
  await waiting;
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

async function places(count: number): Promise<void> {
  while ((await placesOf(etcd.member, NAME)).length !== count);
}

const cli = (...words: string[]) => runCli(words, { endpoints: etcd.endpoints.join(",") });

/** Seconds, by etcd. */
async function ttlNow(): Promise<number> {
  const body = { ID: delayLease.toString() };
  const { TTL } = (await etcd.member.gateway("/v3/lease/timetolive", body)) as { readonly TTL: string };
  return Number(TTL);
}

/** What it returns, and whether a number of seconds is what etcd had left of the lease meanwhile. */
async function during<T>(call: () => Promise<T>) {
  const most = await ttlNow();
  const found = await call();
  const least = await ttlNow();
  const isLeft = (seconds: unknown) => Number(seconds) >= least && Number(seconds) <= most;
  return { found, isLeft };
}

/** The seconds of each "free in N s". */
const freeIn = (text: string) => [...text.matchAll(/free in (\d+) s/g)].map(([, seconds]) => seconds);

describe("a dead holder is told from one that holds", () => {
  test("by inspect(), with what etcd has left of its delay, and whoever is behind it waits", async () => {
    const { found, isLeft } = await during(() => inspect(cluster, NAME));

    expect(found).toMatchObject({
      holders: [{ state: "dead", owner: "the dead", leaseId: delayLease }],
      waiters: [{ state: "waiting", owner: "the waiter" }],
      total: { holders: 1, waiters: 1 },
    });
    const leftMs = found.holders[0]!.ttlRemainingMs!;
    expect(isLeft(leftMs / 1000)).toBe(true);
    expect(JSON.parse(JSON.stringify(found))).toMatchObject({ holders: [{ state: "dead" }] });
    expect(textOf(found)).toContain("0 holding, 1 waiting, 1 dead");
    expect(freeIn(textOf(found))).toEqual([String(leftMs / 1000)]);
  });

  test("by list(), which reads the remaining TTL of dead ones alone", async () => {
    const lock = await new Mutex(cluster, "dead/other").lock();
    const { found, isLeft } = await during(() => list(cluster, "dead/"));
    await lock.release();

    expect(found.locks).toMatchObject([
      { name: NAME, holder: { state: "dead", owner: "the dead" }, waiters: 1 },
      { name: "dead/other", holder: { state: "holding", ttlRemainingMs: undefined }, waiters: 0 },
    ]);
    expect(isLeft(found.locks[0]!.holder!.ttlRemainingMs! / 1000)).toBe(true);
  });

  test("by watchQueue()", async () => {
    for await (const { holders, waiters } of watchQueue(cluster, NAME)) {
      expect([...holders, ...waiters].map(({ state }) => state)).toEqual(["dead", "waiting"]);
      break;
    }
  });

  test("by a LockTimeoutError", async () => {
    const { found, isLeft } = await during(() =>
      reasonOf(new Mutex(cluster, NAME).lock({ timeoutMs: 2000 })),
    );

    expect(found).toMatchObject({ code: "LOCK_TIMEOUT", holder: { state: "dead" }, ahead: 2 });
    const { message } = found as Error;
    expect(message).toContain("its holder the dead is dead");
    expect(message).not.toContain("held by");
    expect(freeIn(message).every(isLeft)).toBe(true);
  });

  test("by leasehold show, ls and top, as text and as JSON", async () => {
    const { found, isLeft } = await during(() =>
      Promise.all([
        cli("show", NAME),
        cli("ls", "dead/"),
        cli("top", "dead/", "--once"),
        cli("show", NAME, "--json"),
        cli("ls", "dead/", "--json"),
        cli("top", "dead/", "--once", "--json"),
      ]),
    );
    const [show, ls, top, ...json] = found.map(({ stdout }) => stdout);

    expect(show).toContain("0 holding, 1 waiting, 1 dead");
    expect(show).toMatch(/^dead, free in \d+ s {2,}the dead /m);
    expect(show).toMatch(/^waiting {2,}the waiter /m);
    expect(ls).toMatch(/^dead\/a {2,}mutex {2,}\(free in \d+ s\) the dead /m);
    expect(top).toMatch(/^dead\/a {2,}mutex {2,}\(free in \d+ s\) the dead {2,}0 {2,}1 {2,}-$/m);
    const seconds = [show, ls, top].flatMap((text) => freeIn(text!));
    expect([seconds.length, seconds.every(isLeft)]).toEqual([3, true]);
    const [shown, listed, topped] = json.map((line) => JSON.parse(line) as Record<string, unknown>);
    const dead = { state: "dead", owner: "the dead" };
    expect(shown).toMatchObject({ holders: [dead], waiters: [{ state: "waiting" }] });
    expect(listed).toMatchObject({ holder: dead });
    expect(topped).toMatchObject({ locks: [{ holders: [dead], total: { holders: 1, waiters: 1 } }] });
  });

  test("by leasehold top on a terminal", async () => {
    const { isLeft, found } = await during(async () => {
      const top = startCli(["top", "dead/"], {
        endpoints: etcd.endpoints.join(","),
        terminal: true,
        before: "stty cols 120",
      });
      await top.says(/0 holding {2}1 waiting/);
      await top.says(/\(free in \d+ s\) the dead/);
      top.child.stdin?.write("\r");
      await top.says(/dead, free in \d+ s/);
      top.child.stdin?.write("q");
      return top.ended;
    });

    expect(freeIn(found.stdout).every((seconds) => isLeft(seconds))).toBe(true);
  });
});
