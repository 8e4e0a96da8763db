// A run in its own process, whose surroundings, such as its network, differ from this process's.
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { NotRunError, type Surroundings, type Tier } from "./ground.js";
import { readRun } from "./journal.js";
import type { LabOptions, LabResult } from "./lab.js";

const PROGRAM = fileURLToPath(new URL("./inside.ts", import.meta.url));
const MARK = "LEASEHOLD_CHAOS_INSIDE";

/** The argument of the program inside; it names its tier. */
export type InsideTask = Omit<LabOptions, "tier" | "say"> & { readonly tier: string; readonly keep: string };

/** The message that it sends. */
export interface Told {
  readonly say?: string;
  readonly notRun?: string;
  readonly done?: Omit<LabResult, "run">;
}

/** Whether this process was started by `runInside` for that tier. */
export const isInside = ({ name }: Pick<Tier, "name">) => process.env[MARK] === name;

/** An environment without the proxies between this machine and the outside, which do not exist inside. */
export function withoutProxies(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !/_proxy$/i.test(name)));
}

export async function runInside(surroundings: Surroundings, options: LabOptions): Promise<LabResult> {
  const { tier, say, ...rest } = options;
  const keep = options.keep ?? (await mkdtemp(path.join(os.tmpdir(), "leasehold-history-")));
  try {
    const child = launch(surroundings, { ...rest, tier: tier.name, keep });
    return { ...(await done(child, say)), run: readRun(keep) };
  } finally {
    await surroundings.end();
    if (options.keep === undefined) await rm(keep, { recursive: true, force: true });
  }
}

function launch({ within, env }: Surroundings, task: InsideTask): ChildProcess {
  const [execPath = process.execPath, ...rest] = [...within, process.execPath, "--import", "tsx"];
  return fork(PROGRAM, [JSON.stringify(task)], {
    ...{ execPath, execArgv: rest },
    env: { ...env, [MARK]: task.tier },
  });
}

async function done(child: ChildProcess, say: LabOptions["say"]): Promise<Omit<LabResult, "run">> {
  let last: Told = {};
  child.on("message", (told: Told) => {
    if (told.say !== undefined) say?.(told.say);
    else last = told;
  });
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  if (last.notRun !== undefined) throw new NotRunError(last.notRun);
  if (last.done === undefined)
    throw new Error(`the run in its own process ended with ${code ?? signal}: see above`);
  return last.done;
}
