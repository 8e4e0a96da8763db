// `leasehold top` with 1,000 locks and 5,000 waiters that change all the time: what it costs, and that it misses nothing.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { expect, test } from "vitest";
import type { LocksJson } from "../../src/tools/cli/json-types.js";
import { connect, list } from "../../src/index.js";
import { putKeys } from "../support/clients/many-keys.js";
import { startEtcd } from "../support/etcd/etcd.js";
import { startCli } from "../support/programs/cli.js";
import { Screen } from "../support/programs/screen.js";

const LOCKS = 1000;
const WAITERS = 5;
/** In a second: each deletes a holder and adds a waiter. */
const CHANGES = 100;
const SECONDS = 10;
const MAX_SHARE = 0.2;

const nameOf = (n: number) => `scale/lock-${String(n).padStart(4, "0")}`;
const keyOf = (n: number, entry: number) => `${nameOf(n)}/${(entry + 256).toString(16)}`;
const base64 = (text: string) => Buffer.from(text).toString("base64");

const TICKS = Number(execFileSync("getconf", ["CLK_TCK"]).toString());

/** Seconds of processor time, user and system. */
function cpuOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

/** The locks after all lines. */
function merged(lines: readonly string[]): Map<string, string> {
  const locks = new Map<string, string>();
  for (const line of lines) {
    const change = JSON.parse(line) as { event: string; locks?: LocksJson["locks"]; gone?: string[] };
    for (const name of change.gone ?? []) locks.delete(name);
    for (const { name, total, holders } of change.locks ?? [])
      locks.set(name, `${holders[0]?.key} ${total.waiters}`);
  }
  return locks;
}

test(
  `top takes less than ${MAX_SHARE * 100} % of a core for ${CHANGES} changes a second, and ends with the state of etcd`,
  { timeout: 180_000 },
  async () => {
    const etcd = await startEtcd();
    const entries = Array.from({ length: LOCKS }, () => ({ first: 0, next: 1 + WAITERS }));
    const keys = entries.flatMap((_, n) =>
      Array.from({ length: 1 + WAITERS }, (_, entry) => keyOf(n, entry)),
    );
    await putKeys(etcd.member, keys);
    const settings = { endpoints: etcd.endpoints.join(",") };
    const before = 'stty rows 24 cols 80; echo "pid $$"';
    const live = startCli(["top", "scale/"], { ...settings, terminal: true, before });
    const json = startCli(["top", "scale/", "--json", "--interval", "1s"], settings);
    await live.says(`${LOCKS} locks`);
    await json.says('"event":"locks"');
    const pid = Number(/pid (\d+)/.exec(live.stdout())?.[1]);

    const [began, cpu] = [performance.now(), cpuOf(pid)];
    for (let change = 0; change < CHANGES * SECONDS; change++) {
      const n = (change * 7) % LOCKS;
      const entry = entries[n]!;
      // Every tenth lock gets shorter, so that the order of the table changes too.
      const adds = n % 10 !== 0 || entry.next - entry.first < 3;
      await etcd.member.gateway("/v3/kv/txn", {
        success: [
          { request_delete_range: { key: base64(keyOf(n, entry.first++)) } },
          ...(adds ? [{ request_put: { key: base64(keyOf(n, entry.next++)), value: "" } }] : []),
        ],
      });
      await pause(Math.max(0, began + ((change + 1) * 1000) / CHANGES - performance.now()));
    }
    const seconds = (performance.now() - began) / 1000;
    const share = (cpuOf(pid) - cpu) / seconds;

    await using cluster = connect({ hosts: etcd.endpoints });
    const { locks } = await list(cluster, "scale/", { limit: LOCKS });
    const truth = new Map(locks.map(({ name, holder, waiters }) => [name, `${holder?.key} ${waiters}`]));
    const waiting = locks.reduce((sum, { waiters }) => sum + waiters, 0);
    const lines = () => json.stdout().split("\n").slice(0, -1);
    await expect.poll(() => merged(lines()), { timeout: 20_000, interval: 500 }).toEqual(truth);
    const screen = new Screen();
    let read = 0;
    const title = () => {
      screen.write(live.stdout().slice(read));
      read = live.stdout().length;
      return screen.lines[0];
    };
    await expect
      .poll(title, { timeout: 20_000, interval: 500 })
      .toContain(`${LOCKS} locks  ${LOCKS} holding  ${waiting} waiting`);
    const rows = screen.lines.filter((line) => line.startsWith("scale/"));
    const byWaiters = locks.toSorted((a, b) => b.waiters - a.waiters || (a.name < b.name ? -1 : 1));
    expect(rows.map((row) => row.split(" ")[0])).toEqual(byWaiters.slice(0, 20).map(({ name }) => name));
    const rate = Math.round((CHANGES * SECONDS) / seconds);
    console.log(
      `${LOCKS} locks, ${waiting} waiters, ${rate} changes a second for ${Math.round(seconds)} s: ` +
        `${(share * 100).toFixed(1)} % of a core, ${Math.round(live.stdout().length / seconds)} bytes a second, ${lines().length} JSON lines`,
    );
    expect(share).toBeLessThan(MAX_SHARE);

    live.child.stdin?.write("q");
    json.child.kill("SIGINT");
    await Promise.all([live.ended, json.ended]);
    await etcd.stop();
  },
);
