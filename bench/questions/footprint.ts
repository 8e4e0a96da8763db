// What a program pays for having leasehold in it: the time of its import, and the memory of a process with one lock.
import { execFile, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Field } from "../frame/field.js";
import { entryOf } from "../peers/build.js";
import { median } from "../report/statistics.js";
import type { Question } from "./question.js";

/** Processes with the import, and as many without. */
const STARTS = 11;
const QUICK_STARTS = 1;
const ONE_LOCK = fileURLToPath(new URL("../worker/one-lock.js", import.meta.url));
const TIMEOUT_MS = 30_000;
const MIB = 2 ** 20;
/** Options that Node.js was started with, such as a loader, would be measured too. */
const env = { ...process.env, NODE_OPTIONS: "" };

const NOTHING = ["-e", "0"];

/** Milliseconds from the start of a process to its end. */
function startMs(args: readonly string[]): number {
  const begun = performance.now();
  const { status, stderr } = spawnSync(process.execPath, args, {
    env,
    encoding: "utf8",
    timeout: TIMEOUT_MS,
  });
  if (status !== 0) throw new Error(`node ended with ${status}: ${stderr}`);
  return performance.now() - begun;
}

/** The processes alternate, so that both meet the same machine. */
function importTime({ build, scale }: Field) {
  const importing = ["--input-type=module", "-e", `import ${JSON.stringify(entryOf(build))}`];
  // Afterwards all files are in the system's cache.
  for (const args of [NOTHING, importing]) startMs(args);
  const starts = Array.from({ length: scale.quick ? QUICK_STARTS : STARTS }, () => ({
    ...{ without: startMs(NOTHING), with: startMs(importing) },
  }));
  const [ms, nothing] = [median(starts.map((it) => it.with)), median(starts.map((it) => it.without))];
  return Promise.resolve({ ms, nothing, added: ms - nothing });
}

async function oneLock({ ground, build, name, peer }: Field) {
  const host = `http://${ground.addresses[0]}`;
  const transport = peer.name === "leasehold-etcd3" ? ["etcd3"] : [];
  const args = ["--expose-gc", ONE_LOCK, entryOf(build), host, name, ...transport];
  const { stdout } = await promisify(execFile)(process.execPath, args, { env, timeout: TIMEOUT_MS });
  const { rss, heapUsed } = JSON.parse(stdout) as Pick<NodeJS.MemoryUsage, "rss" | "heapUsed">;
  return { rss: rss / MIB, heap: heapUsed / MIB };
}

const IMPORT = "import";
const ONE = "one lock held";
const overEtcd3 = { case: ONE, peer: "leasehold", over: { peer: "leasehold-etcd3" } } as const;

export const footprint: Question = {
  name: "footprint",
  title: "What a process pays for leasehold: the import, and memory",
  members: 1,
  columns: [
    { figure: "ms", title: "ms to start and import" },
    { figure: "nothing", title: "ms of `node -e 0`" },
    { figure: "added", title: "ms added" },
    { figure: "rss", title: "MiB resident" },
    { figure: "heap", title: "MiB of heap" },
  ],
  cases: () => [
    { name: IMPORT, peers: ["leasehold"], rounds: 1, run: importTime },
    { name: ONE, peers: ["leasehold", "leasehold-etcd3"], run: oneLock },
  ],
  targets: [
    {
      title: "ms that the import adds to `node -e 0`",
      ...{ case: IMPORT, peer: "leasehold", figure: "added", bound: { atMost: 40 } },
    },
    {
      title: "resident memory with one lock, over that with the transport etcd3",
      ...{ ...overEtcd3, figure: "rss", bound: { atMost: 0.7 } },
    },
    {
      title: "heap with one lock, over that with the transport etcd3",
      ...{ ...overEtcd3, figure: "heap", bound: { atMost: 0.7 } },
    },
  ],
};
