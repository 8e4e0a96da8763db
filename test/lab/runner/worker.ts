// One process of a run: random use of the public API, with each step recorded before and after it. Argument: a JSON
// Task. Messages: "finish" = finish what is running and start nothing new (answers "idle"); "close" = close everything;
// { shiftMs } = the wall clock jumps; { blockedBy } = one loop runs while that file is there.
import "../../support/programs/shift-date.js";
import { existsSync, openSync } from "node:fs";
import type { BaseTask } from "./crew.js";
import { now, record } from "./journal.js";
import { lanesInStep } from "./beats.js";
import { callFirst } from "./first-caller.js";
import { lanesOf } from "./lanes.js";
import { load } from "./leasehold.js";
import { observeAll } from "./listener.js";
import { Register } from "./register.js";
import type { Access } from "./ground.js";
import type { Of } from "./subject.js";
import { machineTime } from "./time.js";

export interface Task extends BaseTask {
  readonly seed: string;
  readonly hosts: readonly string[];
  readonly access: Access;
  readonly requestTimeoutMs: number;
  readonly locks: readonly string[];
  readonly registers: string;
  readonly ttlSeconds: number;
  readonly of: Of;
  /** How many locks it may request at a time. */
  readonly lanes: number;
  readonly camp: number;
  readonly wanted?: boolean;
  readonly sticky?: boolean;
  readonly shards: number;
  readonly calmMs: number;
  readonly valueBytes: number;
  readonly guardian: boolean;
  readonly maxStallMs?: number;
  readonly releaseDelayMs?: number;
  /** A folder with another build of leasehold. */
  readonly build?: string;
}

const task = JSON.parse(process.argv[2] ?? "") as Task;
const fd = openSync(task.journal, "a");
const { p, seed, hosts, access, requestTimeoutMs, ttlSeconds } = task;
const { auth, rootCertificate } = access;
const credentials =
  rootCertificate === undefined ? undefined : { rootCertificate: Buffer.from(rootCertificate) };
const note = (step: object) => record(fd, { t: now(), p, ...step });

// If the orchestrator dies, its workers exit too.
process.once("disconnect", () => process.exit(70));
for (const event of ["uncaughtException", "unhandledRejection"])
  process.on(event, (error: Error) => {
    note({ k: "crash", event, err: String(error?.stack ?? error) });
    process.exit(71);
  });
// grpc-js passes an IP address to TLS as the server name, about which Node.js warns.
const ADDRESS_AS_NAME = "DEP0123";
// With --nested, one of the names is below another one.
const EXPECTED = [ADDRESS_AS_NAME, "NESTED_NAME"];
process.on("warning", (warning: Error & { code?: string }) => {
  if (!EXPECTED.includes(warning.code ?? "")) note({ k: "crash", event: "warning", err: String(warning) });
});

const cell = new Int32Array(new SharedArrayBuffer(4));
const LOOK_MS = 5;
const told = new Map<string, () => void>();
const finish = new Promise<void>((resolve) => told.set("finish", resolve));
const close = new Promise<void>((resolve) => told.set("close", resolve));
process.on("message", (message: string | { shiftMs: number } | { blockedBy: string }) => {
  if (typeof message === "string") told.get(message)?.();
  else if ("blockedBy" in message) while (existsSync(message.blockedBy)) Atomics.wait(cell, 0, 0, LOOK_MS);
  else (globalThis as unknown as { shiftDate(ms: number): void }).shiftDate(message.shiftMs);
});

const STALL_MS = 25;
let last = performance.now();
const sampler = setInterval(() => {
  const late = performance.now() - last - STALL_MS;
  last = performance.now();
  if (late > STALL_MS) note({ k: "stall", ms: Math.round(late) });
}, STALL_MS);

const leasehold = await load(task.build);
const cluster = leasehold.connect({
  hosts,
  ...(auth && { auth }),
  ...(credentials && { credentials }),
  requestTimeoutMs,
  guardian: task.guardian,
  ...(task.maxStallMs !== undefined && { renewal: "worker", maxStallMs: task.maxStallMs }),
  session: { ttlSeconds, releaseDelayMs: task.releaseDelayMs, owner: `${p}/shared` },
});
const first = Number(/\d+/.exec(p)?.[0]);
const register = new Register({
  hosts,
  auth,
  credentials,
  prefix: task.registers,
  first,
  whileHeld: leasehold.whileHeld,
});

let finishing = false;
let ids = 0;
const beats = lanesInStep(task.lanes);
const context = {
  ...{
    p,
    leasehold,
    cluster,
    register,
    ttlSeconds,
    releaseDelayMs: task.releaseDelayMs,
    locks: task.locks,
    of: task.of,
    camp: task.camp,
    wanted: task.wanted ?? false,
    sticky: task.sticky ?? false,
    shards: task.shards,
    calmMs: task.calmMs,
    valueBytes: task.valueBytes,
    note,
    beats,
    time: machineTime,
  },
  nextId: () => ++ids,
  finishing: () => finishing,
};
// Requests without a subscriber take another way: every second process has none.
if (first % 2 === 0) void callFirst(context);
const lanes = lanesOf(context, task.lanes, seed);
const listening = observeAll(task.of === "election" ? task.locks : [], { cluster, leasehold, note });
const running = Promise.all(lanes.map((lane) => lane.run()));

await finish;
finishing = true;
await running;
process.send?.("idle");
await close;
await Promise.all(lanes.map((lane) => lane.close()));
await listening.stop();
await cluster.close();
register.close();
beats?.stop();
// Nothing keeps the process alive any longer: it must end by itself.
clearInterval(sampler);
process.removeAllListeners("disconnect");
process.disconnect();
