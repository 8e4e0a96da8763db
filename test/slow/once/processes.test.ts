// 200 callers of one key in ten processes, of which the one that runs is killed at each step. LEASEHOLD_PROCESSES=200: each in a process
// of its own, which takes some minutes, and 20 GB.
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, once } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import type { OnceTask } from "../../support/programs/once-program.js";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/once-program.ts", import.meta.url));
const PROCESSES = Number(process.env["LEASEHOLD_PROCESSES"] ?? 10);
const CALLERS = 200 / PROCESSES;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

interface Word {
  readonly step: "ready" | "begun" | "worked" | "told";
  readonly status?: string;
  readonly result?: string;
}

class Caller {
  readonly #child: ChildProcess;
  readonly #said: Said;

  constructor(key: string) {
    const task: OnceTask = { hosts: etcd.endpoints, name: "payments", key, callers: CALLERS, ttlSeconds: 3 };
    const execArgv = ["--import", "tsx"];
    this.#child = owned(fork(PROGRAM, [JSON.stringify(task)], { stdio: ["ignore", 2, 2, "ipc"], execArgv }));
    this.#said = new Said(this.#child);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Resolves with this process when it has said so. */
  async said(step: Word["step"]): Promise<this> {
    await this.#said.first((word) => (word as unknown as Word).step === step);
    return this;
  }

  words(step: Word["step"]): readonly Word[] {
    return (this.#said.words as unknown as readonly Word[]).filter((word) => word.step === step);
  }

  tell(word: string): void {
    this.#child.send(word, () => {});
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#said.ended;
  }

  async ended(): Promise<void> {
    await this.#said.ended;
  }
}

/** Of the process that runs: when it is killed, and what becomes of the key. */
const STEPS = [
  { killed: "before its work has done anything", at: "begun", tell: [], status: "lost" },
  { killed: "after its work, and before its mark", at: "worked", tell: ["work"], status: "lost" },
  { killed: "never", at: "worked", tell: ["work"], status: "done" },
] as const;

test.each(STEPS)(
  "200 callers of a key whose process is killed $killed: one runs it, and all others are told that it is $status",
  async ({ killed, at, tell, status }) => {
    const callers = Array.from({ length: PROCESSES }, () => new Caller(killed));
    await Promise.all(callers.map((caller) => caller.said("ready")));
    for (const caller of callers) caller.tell("go");
    const running = await Promise.any(callers.map((caller) => caller.said("begun")));
    for (const word of tell) running.tell(word);
    await running.said(at);
    if (killed === "never") running.tell("end");
    else await running.kill();
    const others = callers.filter((caller) => caller !== running);
    await Promise.all(others.map((caller) => caller.ended()));

    expect(callers.flatMap((caller) => caller.words("begun"))).toHaveLength(1);
    const result = status === "done" ? { result: `by ${running.pid}` } : {};
    const told = others.flatMap((caller) => caller.words("told"));
    expect(told).toEqual(
      Array.from({ length: (PROCESSES - 1) * CALLERS }, () => ({ step: "told", status, ...result })),
    );
    expect(await placesOf(etcd.member, "payments")).toEqual([]);
    await using cluster = connect({ hosts: etcd.endpoints });
    const later = await once(cluster, "payments", killed, () => "again", { result: "keep" });
    expect(later).toMatchObject({ status, ...result });
  },
  PROCESSES * 12_000,
);
