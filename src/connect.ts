import type { Logger } from "./base/options/connect.js";
import { envConnection } from "./base/options/etcdctl.js";
import { MEMORY_HOST } from "./base/options/hosts.js";
import { readContendersAhead } from "./lock/queue/contenders.js";
import type { Cluster } from "./lock/session/cluster.js";
import { type ConnectOptions, createCluster, type Etcd3ConnectOptions } from "./lock/session/connect.js";
import type { EtcdServices } from "./lock/session/connection.js";
import { type QueueReport, stderrLogger, writeLog } from "./base/telemetry/log.js";
import type { AcquireMessage } from "./base/telemetry/messages.js";
import { inOwnContext } from "./base/util/own-context.js";
import { printable } from "./base/util/printable.js";
import { addBoardDoor } from "./observe/board.js";

const READ_MS = 5000;

/** In `globalThis`, which outlives a hot reload of this file: how many clusters of this process are open, by their hosts. */
const OPEN = Symbol.for("leasehold.openClusters");
const MANY_OPEN = 10;

/** Clusters that were dropped without a close stop writing when nothing of them is in use. */
const dropped = new FinalizationRegistry((stop: () => void) => inOwnContext(stop));

/**
 * The cluster behind `hosts`, or behind a client of npm's etcd3. Opens no connection; the first call does. With `LEASEHOLD_DEBUG=1` in the environment, it writes
 * to stderr what `log` would get, of all levels.
 * @throws {TypeError | RangeError} on invalid options; the message names the option, the rule and the value.
 */
export function connect(options: ConnectOptions | Etcd3ConnectOptions): Cluster {
  const cluster = createCluster(options, {
    observe: (services) => {
      const ends = [log(services), countOpen(services)];
      return () => ends.forEach((end) => end());
    },
  });
  addBoardDoor(cluster);
  return cluster;
}

/**
 * A module that a hot reload loads again calls `connect` again, and nobody closes the cluster of before: one warning for each list of
 * hosts. Returns what counts the cluster as closed.
 */
function countOpen(services: EtcdServices): () => void {
  if (services.options.hosts.some((host) => MEMORY_HOST.test(host))) return () => {};
  const hosts = services.options.hosts.join();
  const open = ((globalThis as { [OPEN]?: Map<string, { count: number; told: boolean }> })[OPEN] ??=
    new Map());
  const those = open.get(hosts) ?? { count: 0, told: false };
  open.set(hosts, those);
  if (++those.count >= MANY_OPEN && !those.told) {
    those.told = true;
    process.emitWarning(
      `${those.count} clusters of ${printable(hosts, 200)} are open in this process. One is enough: call connect() once, and close() ` +
        "what is not used. If a hot reload calls it again, keep the cluster in globalThis",
      { type: "LeaseholdWarning", code: "MANY_CLUSTERS" },
    );
  }
  let isOpen = true;
  const closed = (): void => {
    if (isOpen && --those.count === 0 && !those.told) open.delete(hosts);
    isOpen = false;
  };
  dropped.register(services, closed);
  return closed;
}

/** Returns what ends the log. */
function log(services: EtcdServices): () => void {
  const { clock, options } = services;
  const loggers = [options.log, debugLogger()].filter((logger) => logger !== undefined);
  if (loggers.length === 0) return () => {};
  // The channels live as long as the process: what they refer to must not refer to the cluster.
  const inside = new WeakRef(services);
  const readWait = (call: AcquireMessage): Promise<QueueReport | undefined> =>
    readWaitOf(inside.deref(), call);
  const isIdle = (): boolean => isUnused(inside.deref());
  const stop = writeLog({ hosts: options.hosts, loggers, clock, readWait, isIdle });
  dropped.register(services, stop);
  return stop;
}

/**
 * The options of `connect` from the variables of etcdctl, as etcdctl reads them: `connect(fromEnv())`, or with further options
 * `connect({ ...fromEnv(), requestTimeoutMs: 1000 })`. Reads ETCDCTL_ENDPOINTS (default: `127.0.0.1:2379`), or
 * ETCDCTL_DISCOVERY_SRV and ETCDCTL_DISCOVERY_SRV_NAME, the files that ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY name, ETCDCTL_USER
 * (`name:password`) and ETCDCTL_PASSWORD, and ETCDCTL_SERVER_NAME, which etcdctl does not have. It ignores ETCDCTL_DIAL_TIMEOUT,
 * ETCDCTL_COMMAND_TIMEOUT, ETCDCTL_INSECURE_SKIP_TLS_VERIFY and ETCDCTL_INSECURE_TRANSPORT. An empty variable counts as not set.
 * Certificates beside `http://` endpoints are a RangeError. Files are read by this call, synchronously, and again for each new connection:
 * see `ConnectOptions.credentials`.
 * @param env default: `process.env`
 * @throws {TypeError | RangeError} that names the variable, the rule and, except for passwords, the value.
 */
export function fromEnv(env: NodeJS.ProcessEnv = process.env): ConnectOptions {
  return envConnection(env);
}

function debugLogger(): Logger | undefined {
  return process.env.LEASEHOLD_DEBUG === "1" ? stderrLogger() : undefined;
}

/** A session is open, and nothing uses it. */
function isUnused(services: EtcdServices | undefined): boolean {
  const leases = [...(services?.leases ?? [])];
  return leases.length > 0 && leases.every(({ holds, waits }) => holds.size === 0 && waits.size === 0);
}

/** The entry before a call of this process; undefined if it is in no queue. */
async function readWaitOf(
  services: EtcdServices | undefined,
  { kind, names }: AcquireMessage,
): Promise<QueueReport | undefined> {
  const waits = [...(services?.leases ?? [])].flatMap((lease) => [...lease.waits]);
  const described = waits.map((wait) => wait.describe?.());
  // The oldest call is the first one.
  const wait = described.find(
    (each) => each?.kind === kind && names.every((name, n) => each.names[n] === name),
  );
  if (services === undefined || wait === undefined) return undefined;
  const policy = { what: "read the queue", giveUpMs: READ_MS, signal: services.closed };
  return { name: wait.name, ...(await readContendersAhead(services, wait, policy)) };
}
