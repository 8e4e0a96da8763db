// `leasehold run` loses its lock while the next holder waits. Both commands, and a child of each, write the time about
// every millisecond. Unless etcd itself has given the lock away, no time of the first may be later than one of the second.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { placesOf } from "../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../support/etcd/etcd.js";
import { beats, gapMs, readBeats } from "../support/programs/beats.js";
import { runCli, startCli, type CliResult, type RunningCli } from "../support/programs/cli.js";
import { owned } from "../support/programs/owned.js";
import { startTcpProxy, type TcpProxy } from "../support/proxies/tcp-proxy.js";

const ROUNDS = Number(process.env["LEASEHOLD_CLI_LOSS"]);
/** So many rounds at a time: each one has six processes. */
const AT_ONCE = 4;
const TTL_MS = 2000;
/** The second command runs for so long. */
const SECOND_MS = 100;
/** An outage that the first session cannot survive, whenever its last renewal was. */
const [MIN_OUTAGE_MS, MAX_OUTAGE_MS] = [0.95 * TTL_MS, 1.4 * TTL_MS];

let etcd: EtcdCluster;
let proxy: TcpProxy;
let folder: string;
beforeAll(async () => {
  etcd = await startEtcd();
  proxy = await startTcpProxy({ port: Number(new URL(etcd.member.endpoint).port) });
  folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-cli-loss-"));
});
afterAll(async () => {
  await proxy.stop();
  await etcd.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** One pair of holders. */
interface Round {
  readonly name: string;
  readonly file: string;
  readonly first: RunningCli;
  readonly second: Promise<unknown>;
}

/** The first command runs, and the second holder waits: `leasehold run` or, in every other round, `etcdctl lock`. */
async function begin(name: string, n: number, endpoint: string): Promise<Round> {
  const file = path.join(folder, name.replaceAll("/", "-"));
  const flags = ["run", name, "--json", "--ttl", `${TTL_MS / 1000}s`, "--"];
  const first = startCli([...flags, ...beats(file, "first")], { endpoints: endpoint });
  await until(() => Promise.resolve(readBeats(file).get("first")?.pids.size === 2));
  const command = beats(file, "second", SECOND_MS);
  const second = n % 2 === 0 ? nextRun(name, command) : nextEtcdctl(name, command);
  await until(async () => (await placesOf(etcd.member, name)).length === 2);
  return { name, file, first, second };
}

/** With a TTL that outlasts every outage here. */
const nextRun = (name: string, command: readonly string[]) =>
  runCli(["run", name, "--ttl", "60s", "--", ...command], { endpoints: etcd.member.endpoint });

async function nextEtcdctl(name: string, command: readonly string[]): Promise<void> {
  const { program, args, env } = etcd.etcdctlCommand();
  const child = owned(
    spawn(program, [...args, "lock", "--ttl=60", name, ...command], { env, stdio: "ignore" }),
  );
  await once(child, "exit");
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await delay(10);
}

/** What `disturb` does to a whole batch of rounds. */
type Disturb = (rounds: readonly Round[]) => Promise<void>;
interface Figures {
  readonly ends: CliResult[];
  /** Of each round: negative if the commands overlapped. */
  readonly gaps: number[];
}

async function play(
  what: string,
  disturb: Disturb,
  { endpoint = etcd.member.endpoint, rounds = ROUNDS } = {},
) {
  const figures: Figures = { ends: [], gaps: [] };
  for (let n = 0; n < rounds; n += AT_ONCE) {
    const size = Math.min(AT_ONCE, rounds - n);
    const numbers = Array.from({ length: size }, (_, i) => n + i);
    const batch = await Promise.all(
      numbers.map((i) => begin(`${what.replaceAll(" ", "-")}/${i}`, i, endpoint)),
    );
    await disturb(batch);
    await Promise.all(batch.map(({ second }) => second));
    figures.ends.push(...(await Promise.all(batch.map(({ first }) => first.ended))));
    figures.gaps.push(...batch.map(({ file }) => gapMs(file, "first", "second")));
  }
  report(what, figures);
  return figures;
}

function report(what: string, { gaps }: Figures): void {
  const sorted = [...gaps].sort((a, b) => a - b);
  const [least = NaN, median = NaN] = [sorted[0], sorted[Math.floor(sorted.length / 2)]];
  const overlaps = sorted.filter((gap) => gap < 0);
  const toRun = gaps.filter((gap, n) => gap < 0 && n % 2 === 0).length;
  console.log(
    `${what}: ${gaps.length} rounds, ${overlaps.length} overlaps (${toRun} with leasehold run as the next holder), at most ${Math.max(0, -least).toFixed(1)} ms; ` +
      `from the last write of the first to the first write of the second: ${least.toFixed(1)} ms at least, ${median.toFixed(1)} ms in the middle`,
  );
}

const own = async ({ name }: Round) => (await placesOf(etcd.member, name))[0];
const lastEvent = ({ stderr }: CliResult) =>
  JSON.parse(stderr.trim().split("\n").at(-1) ?? "") as Readonly<Record<string, unknown>>;

/** No overlap, and every first `leasehold` knew that it had lost. */
function expectNoOverlap({ gaps, ends }: Figures): void {
  expect(gaps.filter((gap) => !(gap >= 0 && gap < Infinity))).toEqual([]);
  expect(ends.filter(({ code }) => code !== 76)).toEqual([]);
  expect(ends.map(lastEvent).filter(({ event }) => event !== "lost")).toEqual([]);
}

describe("no two commands run at once", { timeout: ROUNDS * 30_000 }, () => {
  test("when etcd stands still", async () => {
    const disturb = async () => {
      etcd.member.pause();
      await delay(MIN_OUTAGE_MS + Math.random() * (MAX_OUTAGE_MS - MIN_OUTAGE_MS));
      etcd.member.resume();
    };

    expectNoOverlap(await play("etcd paused", disturb));
  });

  test("when the link to etcd is cut", async () => {
    const disturb = async (rounds: readonly Round[]) => {
      await proxy.mode("blackhole");
      await Promise.all(rounds.map(({ first }) => first.ended));
      await proxy.mode("pass");
    };

    expectNoOverlap(await play("link cut", disturb, { endpoint: proxy.endpoint }));
  });

  test("when leasehold is stopped, and continued after the next holder has ended", async () => {
    const disturb = async (rounds: readonly Round[]) => {
      for (const { first } of rounds) first.child.kill("SIGSTOP");
      await Promise.all(rounds.map(({ second }) => second));
      for (const { first } of rounds) first.child.kill("SIGCONT");
    };

    expectNoOverlap(await play("leasehold stopped", disturb));
  });
});

/**
 * etcd reports the deletion to both at once, and so gives the lock away before anybody can end a command: how long the
 * commands overlap depends on which process the machine runs first. They do not overlap for longer than that takes.
 */
function expectEndAtOnce({ gaps, ends }: Figures): void {
  expect(gaps.filter((gap) => !(gap >= -TTL_MS / 4 && gap < Infinity))).toEqual([]);
  expect(ends.filter(({ code }) => code !== 76)).toEqual([]);
  expect(ends.map(lastEvent).filter(({ event, ranOnMs }) => event !== "lost" || ranOnMs !== 0)).toEqual([]);
}

describe("the first command is killed at once", { timeout: ROUNDS * 30_000 }, () => {
  test("when the lease is revoked", async () => {
    const revoke = async (round: Round) => {
      const { leaseId = 0n } = (await own(round)) ?? {};
      await etcd.member.gateway("/v3/lease/revoke", { ID: leaseId.toString() });
    };

    expectEndAtOnce(
      await play("lease revoked", async (rounds) => void (await Promise.all(rounds.map(revoke)))),
    );
  });

  test("when the key is deleted", async () => {
    const drop = async (round: Round) => {
      const key = Buffer.from((await own(round))?.key ?? "").toString("base64");
      await etcd.member.gateway("/v3/kv/deleterange", { key });
    };

    expectEndAtOnce(await play("key deleted", async (rounds) => void (await Promise.all(rounds.map(drop)))));
  });
});

/** The resolution of the clock that counts suspend. */
const UPTIME_MS = 10;

/** The guardian of a running `leasehold`, which leads a process group. */
function guardianOf({ child: { pid = 0 } }: RunningCli): number {
  for (const name of readdirSync("/proc").filter((entry) => /^\d+$/.test(entry))) {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      const [, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      const line = readFileSync(`/proc/${name}/cmdline`, "latin1");
      if (Number(parent) === pid && line.includes("alarm=")) return Number(name);
    } catch {
      // It has ended since.
    }
  }
  throw new Error(`process ${pid} has no guardian`);
}

test("the limit: when leasehold and its guardian are stopped, the command runs on until both continue, and that is told", async () => {
  const disturb = async (rounds: readonly Round[]) => {
    const pids = rounds.flatMap(({ first }) => [first.child.pid ?? 0, -guardianOf(first)]);
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    await Promise.all(rounds.map(({ second }) => second));
    for (const pid of pids) process.kill(pid, "SIGCONT");
  };
  const { ends, gaps } = await play("leasehold and guardian stopped", disturb, {
    rounds: Math.min(ROUNDS, AT_ONCE),
  });

  expect(ends.map(({ code }) => code)).toEqual(ends.map(() => 76));
  for (const [n, { event, ranOnMs }] of ends.map(lastEvent).entries()) {
    expect(event).toBe("lost");
    expect(ranOnMs).toBeGreaterThan(-(gaps[n] ?? NaN) - UPTIME_MS);
  }
}, 120_000);
