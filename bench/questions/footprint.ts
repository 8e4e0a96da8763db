// What a program pays for having leasehold in it: the time of its import, that of a command under a lock, and the memory of a process
// with one lock.
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
const WARM_ROUNDS = 20;
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
function startTimes(args: readonly string[], { scale }: Field) {
  // Afterwards all files are in the system's cache.
  for (const each of [NOTHING, args]) startMs(each);
  const starts = Array.from({ length: scale.quick ? QUICK_STARTS : STARTS }, () => ({
    ...{ without: startMs(NOTHING), with: startMs(args) },
  }));
  const [ms, nothing] = [median(starts.map((it) => it.with)), median(starts.map((it) => it.without))];
  return { ms, nothing, added: ms - nothing };
}

const importTime = (field: Field) =>
  Promise.resolve(
    startTimes(["--input-type=module", "-e", `import ${JSON.stringify(entryOf(field.build))}`], field),
  );

/** `over`: Node.js' own start and the same calls in a process that is warm, as far as a program can be fast. */
async function runTime(field: Field) {
  const { ground, build, name } = field;
  const host = `http://${ground.addresses[0]}`;
  const program = fileURLToPath(new URL("leasehold-cli.js", entryOf(build)));
  const times = startTimes([program, "run", name, "--endpoints", host, "--", "true"], field);
  const calls = await callsMs(entryOf(build), host, name);
  return { ...times, over: times.ms / (times.nothing + calls) };
}

/** Connect, lock, release, close. */
async function callsMs(entry: string, host: string, name: string): Promise<number> {
  const { connect, Mutex } = (await import(entry)) as typeof import("../../src/index.js");
  const rounds: number[] = [];
  for (let n = 0; n < 2 * WARM_ROUNDS; n++) {
    const begun = performance.now();
    const cluster = connect({ hosts: host });
    await new Mutex(cluster, name).withLock(() => undefined);
    await cluster.close();
    rounds.push(performance.now() - begun);
  }
  return median(rounds.slice(WARM_ROUNDS));
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
const RUN = "leasehold run x -- true";
const ONE = "one lock held";
const overEtcd3 = { case: ONE, peer: "leasehold", over: { peer: "leasehold-etcd3" } } as const;

export const footprint: Question = {
  name: "footprint",
  title: "What a process pays for leasehold: the start, and memory",
  members: 1,
  columns: [
    { figure: "ms", title: "ms from start to end" },
    { figure: "nothing", title: "ms of `node -e 0`" },
    { figure: "added", title: "ms added" },
    { figure: "over", title: "over `node -e 0` and the calls" },
    { figure: "rss", title: "MiB resident" },
    { figure: "heap", title: "MiB of heap" },
  ],
  cases: () => [
    { name: IMPORT, peers: ["leasehold"], rounds: 1, run: importTime },
    { name: RUN, peers: ["leasehold"], rounds: 1, run: runTime },
    { name: ONE, peers: ["leasehold", "leasehold-etcd3"], run: oneLock },
  ],
  targets: [
    {
      title: "ms that the import adds to `node -e 0`",
      ...{ case: IMPORT, peer: "leasehold", figure: "added", bound: { atMost: 25 } },
    },
    {
      title: "`leasehold run x -- true`, over `node -e 0` and the same calls in a warm process",
      ...{ case: RUN, peer: "leasehold", figure: "over", bound: { atMost: 1.6 } },
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
