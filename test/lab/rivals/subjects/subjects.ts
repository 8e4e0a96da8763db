// The subjects of the comparison, and how each is started.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { goClientVersion, goProgram } from "../go/build.js";
import type { Task } from "../worker.js";
import type { AdapterName } from "./adapters.js";

export type GroundKind = "etcd" | "redis-pair" | "redis-trio";
type Command = readonly [string, ...string[]];
type Where = Omit<Task, "adapter">;

export interface Subject {
  /** The name on the command line. */
  readonly name: string;
  readonly title: string;
  readonly ground: GroundKind;
  /** The subject promises to serve waiters in the order of their requests. */
  readonly queues: boolean;
  /** The wall clock of its process can be moved on this machine. */
  readonly movesClock: boolean;
  /** How a process that uses it is started; rejects with a `NotRunError` where that is not possible. */
  command(where: Where): Promise<Command>;
}

const WORKER = fileURLToPath(new URL("../worker.ts", import.meta.url));
const TSX = import.meta.resolve("tsx");

const inNode = (adapter: AdapterName) => ({
  movesClock: true,
  command: (where: Where) =>
    Promise.resolve<Command>([
      process.execPath,
      ...["--import", TSX, WORKER, JSON.stringify({ ...where, adapter } satisfies Task)],
    ]),
});

function version(name: string): string {
  const file = new URL(`../../../../node_modules/${name}/package.json`, import.meta.url);
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version.replace(/^v/, "");
}
const redlock = `redlock ${version("redlock")}`;
const semaphore = `redis-semaphore ${version("redis-semaphore")}`;

export const SUBJECTS: readonly Subject[] = [
  { name: "leasehold", title: "leasehold", ground: "etcd", queues: true, ...inNode("leasehold") },
  {
    ...{ name: "leasehold-options", title: 'leasehold, `guardian` and `renewal: "worker"`', ground: "etcd" },
    ...{ queues: true, ...inNode("leasehold-options") },
  },
  {
    ...{ name: "go", title: `Go concurrency.Mutex ${goClientVersion()}`, ground: "etcd", queues: true },
    movesClock: false,
    command: async (where) => [await goProgram(), JSON.stringify(where)],
  },
  {
    ...{ name: "etcd3-acquire", title: `etcd3 ${version("etcd3")} Lock.acquire()`, ground: "etcd" },
    ...{ queues: false, ...inNode("etcd3-acquire") },
  },
  {
    ...{ name: "etcd3-do", title: `etcd3 ${version("etcd3")} Lock.do()`, ground: "etcd" },
    ...{ queues: false, ...inNode("etcd3-do") },
  },
  {
    ...{ name: "redlock", title: `${redlock}, master and replica`, ground: "redis-pair" },
    ...{ queues: false, ...inNode("redlock") },
  },
  {
    ...{ name: "redlock-3", title: `${redlock}, three masters`, ground: "redis-trio" },
    ...{ queues: false, ...inNode("redlock") },
  },
  {
    ...{ name: "mutex", title: `${semaphore} Mutex, master and replica`, ground: "redis-pair" },
    ...{ queues: false, ...inNode("mutex") },
  },
  {
    ...{ name: "redlock-mutex", title: `${semaphore} RedlockMutex, three masters`, ground: "redis-trio" },
    ...{ queues: false, ...inNode("redlock-mutex") },
  },
];
