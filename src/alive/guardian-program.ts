// The process that `connect({ guardian: true })` starts: see guardian.ts, which writes the orders that it reads from its standard
// input. Only its parent has the other end of that pipe, so the end of the input says that the parent is gone: the kernel closes
// what a process has open, however the process ends. It then revokes the leases that the parent had.
import { createInterface } from "node:readline";
import { EtcdClient } from "../etcd/client.js";
import { GrpcMember } from "../etcd/http2/member.js";
import { LeaseNotFoundError } from "../etcd/port.js";
import { checkConnect } from "../base/options/connect.js";
import { pause, systemClock } from "../base/util/clock.js";
import type { GuardedLease, GuardianOrder, Reach } from "./guardian.js";

/** Between two attempts, if etcd refuses one. */
const PAUSE_MS = 500;
/** Without an answer of etcd. One that is back gives each lease its whole TTL again, so that does not bound the time. */
const AWAY_MS = 3_600_000;
const LEASE = ["lease"] as const;
/** The kernel closes a pipe a moment before it gives the children of a process to another one. */
const ORPHANED_WITHIN_MS = 1000;

const reaches = new Map<number, Reach>();
const leases = new Map<string, GuardedLease & { readonly cluster: number }>();
/** The process ID of the parent; undefined: it is not to be checked. */
let parent: number | undefined;
/** This process is not the child of the parent. */
let isApart = false;

function take(line: string): void {
  const order = orderOf(line);
  switch (order?.do) {
    case undefined:
      break;
    case "begin":
      ({ parent, apart: isApart } = order);
      break;
    case "reach":
      reaches.set(order.cluster, order.reach);
      break;
    case "guard":
      leases.set(order.lease, order);
      void warmUp(order);
      break;
    case "forget":
      forget(order.lease);
      process.stdout.write(`${order.lease}\n`);
      break;
  }
}

/** A cluster is forgotten with its last lease. */
function forget(lease: string): void {
  const cluster = leases.get(lease)?.cluster;
  leases.delete(lease);
  if (cluster !== undefined && ![...leases.values()].some((other) => other.cluster === cluster))
    reaches.delete(cluster);
}

/** The parent may have died in the middle of a line. */
function orderOf(line: string): GuardianOrder | undefined {
  try {
    return JSON.parse(line) as GuardianOrder;
  } catch {
    return undefined;
  }
}

/** Whether the parent is gone, and has not just lost its end of the pipe. */
async function isOrphaned(): Promise<boolean> {
  const start = systemClock.monotonic();
  while (isThere()) {
    if (systemClock.monotonic() - start > ORPHANED_WITHIN_MS) return false;
    await pause(systemClock, 1);
  }
  return true;
}

/** Whether the parent still runs. A child of it gets another parent when it has ended. */
const isThere = (): boolean =>
  isApart && parent !== undefined ? isRunning(parent) : process.ppid === parent;

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
  try {
    const stat = process.getBuiltinModule("node:fs").readFileSync(`/proc/${pid}/stat`, "latin1");
    // The process has ended, and its own parent has not noticed it yet.
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    // The process has just ended, or this system has no such file.
    return process.platform !== "linux";
  }
}

function clientOf(reach: Reach): EtcdClient {
  const options = checkConnect(reach);
  const context = { options, clock: systemClock };
  return new EtcdClient(options, systemClock, (host, setting) => new GrpcMember(host, setting, context));
}

let isWarm = false;

/**
 * The first request of a process takes some 20 ms longer: Node.js compiles what runs. So one is made before it matters; the connection is
 * closed again, and costs etcd nothing.
 */
async function warmUp({
  cluster,
  lease,
}: {
  readonly cluster: number;
  readonly lease: string;
}): Promise<void> {
  const reach = reaches.get(cluster);
  if (isWarm || !reach) return;
  isWarm = true;
  const policy = { what: "read a lease", giveUpMs: reach.requestTimeoutMs };
  try {
    const client = clientOf(reach);
    await client
      .call((member, options) => member.timeToLive(idOf(lease), options), policy)
      .finally(() => client.close());
  } catch {
    // The parent may reach etcd nevertheless: it is tried again when it matters.
  }
}

const idOf = (lease: string): bigint => BigInt(`0x${lease}`);

/** True: etcd has no such lease. False: it has refused to revoke it for the TTL, so it has expired; or it has not answered for `AWAY_MS`. */
async function revoke(client: EtcdClient, lease: string, ttlMs: number): Promise<boolean> {
  let end = systemClock.monotonic() + Math.max(AWAY_MS, ttlMs);
  for (;;) {
    const giveUpMs = end - systemClock.monotonic();
    if (giveUpMs <= 0) return false;
    const policy = { what: "revoke a lease", giveUpMs, limitIsGiven: true, answers: LEASE };
    try {
      await client.call((member, options) => member.revoke(idOf(lease), options), policy);
      return true;
    } catch (error) {
      if (error instanceof LeaseNotFoundError) return true;
    }
    // etcd is back, and nobody renews the lease.
    end = Math.min(end, systemClock.monotonic() + ttlMs);
    await pause(systemClock, PAUSE_MS);
  }
}

/** Aborts when this process is asked to end. */
const hasty = new AbortController();

async function revokeAll(): Promise<void> {
  if (leases.size === 0 || !(await isOrphaned())) return;
  const limitMs = Math.max(...[...leases.values()].map(({ ttlMs }) => ttlMs));
  const limit = (): unknown => systemClock.after(limitMs, () => process.exit());
  if (hasty.signal.aborted) limit();
  else hasty.signal.addEventListener("abort", limit);
  await Promise.allSettled([...reaches].map(([cluster, reach]) => revokeOf(cluster, reach)));
}

async function revokeOf(cluster: number, reach: Reach): Promise<void> {
  const client = clientOf(reach);
  const own = [...leases].filter(([, lease]) => lease.cluster === cluster);
  const atOnce = own.filter(([, { after }]) => after === undefined);
  const revoked = new Map(atOnce.map(([lease, { ttlMs }]) => [lease, revoke(client, lease, ttlMs)]));
  const later = own.map(async ([lease, { ttlMs, after }]) => {
    // If the end of the other one is not known, this one expires: it was granted for long enough.
    if (!after || (await revoked.get(after.lease)) !== true) return;
    await pause(systemClock, after.delayMs);
    await revoke(client, lease, ttlMs);
  });
  await Promise.all([...revoked.values(), ...later]);
}

/** Starts the guardian as a process that is no descendant of the parent, once this one has ended. It says what to kill. */
function startApart(): void {
  const { spawn } = process.getBuiltinModule("node:child_process");
  const words = [...process.execArgv, process.argv[1] ?? ""];
  const stdio = [3, "inherit", "inherit"] as const;
  const child = spawn(process.execPath, words, { detached: true, windowsHide: true, stdio: [...stdio] });
  child.on("error", ({ message }) => process.stderr.write(`Error: ${message}\n`)).unref();
  process.stdout.write(`pid ${child.pid}\n`);
}

function serve(): void {
  // What ends the group of the parent, or its service, does not end this process before its work is done, but waits for it.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => hasty.abort());
  for (const output of [process.stdout, process.stderr]) output.on("error", () => {});
  process.stdout.write("runs\n");
  createInterface({ input: process.stdin })
    .on("line", take)
    .on("close", () => void revokeAll().finally(() => process.exit()));
}

if (process.argv[2] === "apart") startApart();
else serve();
