// Many processes that acquire several names at once in any order, and single names in between.
import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { owned } from "../../support/programs/owned.js";
import { Guardian } from "../../support/servers/guarded.js";
import type { HeldTogether, ManyLocksTask } from "../../support/programs/many-locks-worker.js";
import { crowdOf } from "../../support/fixtures/scale.js";
import { observe } from "../../support/clients/observer.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/many-locks-worker.ts", import.meta.url));
const PROCESSES = crowdOf(10, 4);
const CALLERS = 5;
const CALLS = crowdOf(20, 10);
const NAMES = Array.from({ length: 20 }, (_, n) => `many/n${n}`);

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

/** Runs them to completion, and returns what they held. */
async function played(): Promise<HeldTogether[]> {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-many-"));
  const guardian = new Guardian(folder);
  const journals = Array.from({ length: PROCESSES }, (_, n) => path.join(folder, `p${n}.jsonl`));
  const ended = journals.map(async (journal, n) => {
    const task = {
      seed: `many ${n}`,
      hosts: etcd.endpoints,
      names: NAMES,
      callers: CALLERS,
      calls: CALLS,
      journal,
    };
    const child = owned(
      fork(PROGRAM, [JSON.stringify(task satisfies ManyLocksTask)], { execArgv: ["--import", "tsx"] }),
    );
    guardian.tell(`+${child.pid}`);
    const [code] = (await once(child, "exit")) as [number | null];
    guardian.tell(`-${child.pid}`);
    expect(code).toBe(0);
  });
  await Promise.all(ended);
  const lines = journals.flatMap((journal) => readFileSync(journal, "utf8").trim().split("\n"));
  await guardian.dismiss();
  return lines.map((line) => JSON.parse(line) as HeldTogether);
}

describe(`${PROCESSES * CALLERS * CALLS} calls of lockAll and lock over twenty names by ${PROCESSES} processes`, () => {
  test("all end, never hold a name twice, overtake nobody, and join all or nothing", async () => {
    using server = await observe(etcd.member.endpoint, "many/");

    const held = await played();

    expect(held).toHaveLength(PROCESSES * CALLERS * CALLS);
    for (const name of NAMES) {
      const holds = held.filter(({ names }) => names.includes(name));
      holds.sort((a, b) => Number(BigInt(a.from) - BigInt(b.from)));
      const overlaps = holds.filter(({ from }, n) => BigInt(holds[n - 1]?.to ?? 0) > BigInt(from));
      const fences = holds.map(({ fence }) => BigInt(fence));
      expect(overlaps).toEqual([]);
      // In the order of their joins: no call waits for more than the places that were there before it.
      expect(fences).toEqual([...fences].sort((a, b) => Number(a - b)));
    }
    const seen = (type: string) => server.seen.filter((event) => event.type === type);
    await expect.poll(() => seen("DELETE").length).toBe(seen("PUT").length);
    const joined = seen("PUT");
    for (const { names, fence } of held) {
      const together = joined.filter(
        ({ create, key }) => create === BigInt(fence) && names.some((name) => key.startsWith(`${name}/`)),
      );
      expect(together).toHaveLength(names.length);
    }
  }, 120_000);
});
