import { systemClock } from "../async/clock.js";
import { EtcdClient } from "../etcd/client.js";
import { Etcd3Member } from "../etcd/etcd3/member.js";
import { checkConnect } from "../options/connect.js";
import { newCluster, type Cluster } from "./cluster.js";
import { newClusterState } from "./connection.js";
import type { SessionOptions } from "./session-options.js";

export interface Credentials {
  /** PEM text of the certificate authority that signed the members' certificates. */
  readonly rootCertificate: Uint8Array;
  /** PEM text of this client's key and certificate, for members that request one. Give both or neither. */
  readonly privateKey?: Uint8Array | undefined;
  readonly certChain?: Uint8Array | undefined;
}

export interface ConnectOptions {
  /** `"http://host:2379"`, or a list. One host name may resolve to several members. `https://` uses TLS. */
  readonly hosts: string | readonly string[];
  readonly credentials?: Credentials | undefined;
  /** User and password. The token is fetched on first use and renewed when etcd rejects it. */
  readonly auth?: { readonly username: string; readonly password: string } | undefined;
  /** gRPC channel options, merged over ours. With a `grpc.keepalive_time_ms` below 5000, etcd closes the connection. */
  readonly grpcOptions?: Readonly<Record<string, unknown>> | undefined;
  /**
   * Milliseconds for one attempt on one member, 100..60000; after that, the next member is tried. An attempt for a
   * session takes at most a quarter of its TTL, except for the call that opens the session.
   * @default 2000
   */
  readonly requestTimeoutMs?: number | undefined;
  /** For the session that `cluster.session()` keeps. */
  readonly session?: SessionOptions | undefined;
}

/**
 * The cluster behind `hosts`. Opens no connection; the first call does.
 * @throws {TypeError | RangeError} on invalid options; the message names the option, the rule and the value.
 */
export function connect(options: ConnectOptions): Cluster {
  const checked = checkConnect(options);
  const clock = systemClock;
  const client = new EtcdClient(
    checked,
    clock,
    (host, setting) => new Etcd3Member(host, setting, { options: checked, clock }),
  );
  return newCluster(newClusterState(checked, client, clock));
}
