import { EtcdClient } from "../../etcd/client.js";
import { SecondHost } from "../../etcd/second-host.js";
import { failures, memberOf, memoryEntryOf, type NewMember } from "../../etcd/transport.js";
import { checkConnect, type LogFunction, type Logger } from "../../base/options/connect.js";
import type { Etcd3Client } from "../../base/options/etcd3-client.js";
import { type Clock, systemClock } from "../../base/util/clock.js";
import { type Cluster, newCluster } from "./cluster.js";
import { newClusterState, type Observe } from "./connection.js";
import type { StartThread } from "../../alive/threaded-keepalive.js";
import type { SessionOptions } from "./session-options.js";

export interface Credentials {
  /** PEM text, as a string or as bytes, of the certificate authority that signed the members' certificates. */
  readonly rootCertificate: string | Uint8Array;
  /** PEM text of this client's key and certificate, for members that request one. Give both or neither. */
  readonly privateKey?: string | Uint8Array | undefined;
  readonly certChain?: string | Uint8Array | undefined;
  /**
   * The host name in the members' certificates, if it is not the one in `hosts`: for hosts that are IP addresses, tunnels
   * and balancers. Sent as TLS's server name.
   */
  readonly serverName?: string | undefined;
}

export interface ConnectOptions {
  /**
   * `"host:2379"` or `"http://host:2379"`; several with commas between them, or in an array. `https://` uses TLS, as does a host
   * without a scheme if there are `credentials`. Without a port: 2379. An IPv6 address needs brackets; a path, a user or a password is an
   * error. One host name may resolve to several members. `cluster.hosts` has each host once, as `http(s)://host:port`.
   *
   * `"unix:///run/etcd.sock"` is a socket of the file system, for the transport "http2" and etcd 3.7; in an array, its path may contain a
   * comma. `"srv:example.com"` stands for the SRV records `_etcd-client-ssl._tcp.example.com` if there are `credentials`, else
   * `_etcd-client._tcp.example.com`; a name that begins with `_` is taken as it is. The lowest priority comes first, and weights spread the
   * clients. The records are looked up before the first call, and after a member has failed. The hosts of `memoryEtcd()` of
   * leasehold/testing lead to an etcd inside this process.
   */
  readonly hosts: string | readonly string[];
  /**
   * `true`: etcd is asked for its members after each new connection, and every 10 s, so members that are added later are found. What
   * etcd lists, by the client URLs that the members advertise, is added to `hosts`; learners, URLs of another scheme and the list of
   * another cluster are left out. So this process must reach their `--advertise-client-urls` (`etcdctl member list`). Not with the
   * transport "etcd3". `cluster.hosts` has the present list.
   * @default false
   */
  readonly followMembers?: boolean | undefined;
  /**
   * The start of all keys of this cluster, such as `"prod/"`: ends with "/", has no "//", doesn't begin with "/leasehold/", and is at most
   * 256 bytes long, which don't count in the length of names. Names, and the prefix of `list`, are relative to it in each object, error,
   * event and log line; keys contain it: the `name` of a lock is what you passed, its `key` is the complete key in etcd. Clusters
   * with different prefixes on one etcd share no locks, unless one prefix begins with the other. Clients without the option can't name the
   * queues of a prefix that begins with "/".
   * @default none
   */
  readonly prefix?: string | undefined;
  /**
   * Certificates for TLS. A function is called for each new connection, and must return at once: certificates that were exchanged,
   * and a new authority, are in use from the next connection on, without a loss of a session. Connections that are open go on.
   * What a function throws, or returns, is checked by `connect` as well; later, as when the key and the certificate do not belong together
   * because one file is not written yet, the last good credentials stay in use, and a line of the log (or else a warning of the process)
   * says why.
   */
  readonly credentials?: Credentials | (() => Credentials) | undefined;
  /**
   * User and password. The token is fetched on first use and renewed when etcd rejects it. A function is called for each token, and must
   * return at once, so that a password that was changed is in use without a loss of a session; with `guardian` or `renewal: "worker"`, also
   * every 10 s. What it throws, or returns, is checked as that of `credentials` is.
   */
  readonly auth?:
    | { readonly username: string; readonly password: string }
    | (() => { readonly username: string; readonly password: string })
    | undefined;
  /**
   * What carries the calls: HTTP/2 of this library's own, or npm's etcd3, which uses grpc-js, and is to be installed beside leasehold.
   * "etcd3" goes through the proxy that `https_proxy` names. It takes no `srv:`, `unix:` and `followMembers`, and from Node.js 26 on no
   * `https://` host with an IP address (`reason: "tls"`) without `credentials.serverName`. No option skips the verification of
   * certificates; with "http2", NODE_TLS_REJECT_UNAUTHORIZED=0 doesn't, either.
   * @default "http2"
   */
  readonly transport?: "http2" | "etcd3" | undefined;
  /**
   * For the transport "http2": milliseconds between two pings of a connection with a stream, 5000..3600000. etcd rejects
   * shorter intervals. A host that asks for fewer pings gets fewer.
   * @default 6000
   */
  readonly pingIntervalMs?: number | undefined;
  /**
   * For the transport "http2": milliseconds until a ping without an answer ends the connection, 100..60000.
   * @default 2000
   */
  readonly pingTimeoutMs?: number | undefined;
  /**
   * For the transport "http2": milliseconds for TCP and TLS of one connection, 100..60000.
   * @default 2000
   */
  readonly connectTimeoutMs?: number | undefined;
  /**
   * Milliseconds for one attempt on one member, with the time to connect, 100..60000; after that, the next member is tried, on a new
   * connection. An attempt for a session takes at most a quarter of its TTL, except for the call that opens the session.
   * @default 2000
   */
  readonly requestTimeoutMs?: number | undefined;
  /**
   * `true`: a small process of its own revokes the leases of this process at once when this process has ended, however that came: a crash,
   * `kill -9`, a lack of memory, `process.exit()`. The next waiters then do not wait for the TTL. A process that is stopped or blocked
   * loses nothing by it. docs/leases.md says what it can't do, and where it can't run.
   *
   * One guardian serves all clusters of a process, from the first session until the last one is closed, and keeps no process alive. Each
   * worker thread with sessions, each process of `node:cluster` and `fork`, and each copy of leasehold has its own. The guardian of a thread
   * that has ended is a zombie until the process ends: use it in threads that last. If a guardian ends, another one starts within 60 s.
   * Meanwhile a crash frees locks after the TTL; `cluster.health().guardian` has the cause, and once the log or a warning (GUARDIAN_ENDED).
   *
   * If etcd is away, the guardian tries for an hour, or for the TTL if that is longer; after a refusal, for one TTL. An etcd that comes back
   * gives each lease its whole TTL again. SIGINT, SIGTERM and SIGHUP, as from systemd at the end of a service, limit its work to the longest TTL.
   * Certificates, keys and passwords reach it through a pipe, never through arguments or the environment; new ones, and new hosts, when a
   * connection fails, and otherwise within 10 s.
   * @default false
   */
  readonly guardian?: boolean | undefined;
  /**
   * `"worker"`: a worker thread renews the leases, over a connection of its own, so a busy main thread does not lose its locks. What a
   * lock reports is right in the first line that runs after a stall, but for what was taken away by hand meanwhile. A lease that was
   * revoked by hand is noticed within a third of the TTL. docs/leases.md says what a busy main thread can't do, and where no thread can run.
   *
   * The main thread renews a lease that the thread does not. A thread that has ended starts again after 1 s, doubling to a minute; a warning
   * (RENEWAL_WORKER_ENDED) tells each reason once. New certificates and hosts reach it when a connection fails, and otherwise within 10 s.
   * @default "main": the thread that calls `connect`
   */
  readonly renewal?: "main" | "worker" | undefined;
  /**
   * For the renewal in a worker thread: milliseconds without a timer of this thread, 1000..86400000, after which the worker renews no
   * more. So a process that is stuck loses its locks: within this time and a TTL.
   * @default the TTL of the session
   */
  readonly maxStallMs?: number | undefined;
  /** For the session that `cluster.session()` keeps. */
  readonly session?: SessionOptions | undefined;
  /**
   * Gets one line, one string, for each episode: jeopardy, loss, fail-over, long waits and holds. `console`, or a logger of
   * pino or winston. A function gets the same as a LogRecord, of all levels. What it throws is dropped. A line has at most 2000 characters
   * and no control characters; a name is cut after 200. A wait has a line after 30 s, 1 min, 2 min, 4 min and so on, for the call of this
   * process that has waited longest for the lock, which costs one read of the queue; that of a candidate is of the level debug.
   * `cluster.close()` ends the log.
   * @default none: nothing is written but a warning of the process for a loss that nothing else shows
   */
  readonly log?: Logger | LogFunction | undefined;
  /** See Etcd3ConnectOptions. */
  readonly etcd3?: undefined;
}

/**
 * `connect` over a client that the program has already. Its hosts, connections, TLS, user and password are used, so every other
 * option that says how members are reached is refused.
 */
export interface Etcd3ConnectOptions
  extends
    Pick<ConnectOptions, "prefix" | "requestTimeoutMs" | "session" | "log">,
    Readonly<Partial<Record<ClientsOwn, undefined>>> {
  /**
   * An instance of npm's `Etcd3`, and no namespace of one: give `prefix`. leasehold uses one of its hosts at a time, fetches a token of its
   * own for its user and password, and repeats by itself: the client's `grpcOptions` apply, but not its `faultHandling` and
   * `defaultCallOptions`. `cluster.close()` leaves it open; close it after the cluster.
   *
   * In its `grpcOptions`, `"grpc.keepalive_time_ms": 6000` finds a dead link after seconds, also while nothing is sent, and
   * `"grpc.max_receive_message_length": -1` reads answers over 4 MiB, with large values of others under your names.
   */
  readonly etcd3: Etcd3Client;
  readonly transport?: "etcd3" | undefined;
}

/** What a client of etcd3 decides. */
type ClientsOwn =
  | ("hosts" | "followMembers" | "credentials" | "auth" | "guardian" | "renewal" | "maxStallMs")
  | ("pingIntervalMs" | "pingTimeoutMs" | "connectTimeoutMs");

/** What `connect` adds, and what a simulation replaces. */
export interface Surroundings {
  readonly observe?: Observe;
  readonly clock?: Clock;
  readonly newMember?: NewMember;
  readonly startThread?: StartThread;
}

/**
 * A cluster that writes no log.
 * @throws {TypeError | RangeError} on invalid options; the message names the option, the rule and the value.
 */
export function createCluster(
  options: ConnectOptions | Etcd3ConnectOptions,
  surroundings: Surroundings = {},
): Cluster {
  const checked = checkConnect(options);
  const memory = memoryEntryOf(checked.hosts);
  const { clock = systemClock, newMember = memberOf, observe, startThread } = { ...surroundings, ...memory };
  const context = { options: checked, clock, failures };
  const client = new EtcdClient(checked, clock, (host, setting) => newMember(host, setting, context));
  const second = new SecondHost(client, clock);
  const observeBoth: Observe = (services) => {
    const ends = [observe?.(services), memory?.connected(services), () => second.close()];
    return () => ends.forEach((end) => end?.());
  };
  const cluster = newCluster(newClusterState(checked, client, { clock, observe: observeBoth, startThread }));
  memory?.made(cluster);
  return cluster;
}
