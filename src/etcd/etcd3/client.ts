import type { Etcd3, IOptions } from "etcd3";
import type { CheckedConnect } from "../../options/connect.js";

const GRPC_OPTIONS = {
  "grpc.keepalive_timeout_ms": 2000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1000,
  // Other clients' values may be large. An answer over 4 MiB would look like the rejection of a request that was executed.
  "grpc.max_receive_message_length": -1,
};

/** A request that gRPC repeats by itself would find its own key: no user option may switch that on. */
const NO_RETRIES = { "grpc.enable_retries": 0, "grpc.service_config_disable_resolution": 1 };

const NEVER = new AbortController().signal;

type Policy = NonNullable<NonNullable<IOptions["faultHandling"]>["global"]>;

/**
 * Each request is made once: etcd3's own retries repeat requests that must not be repeated, and its breaker blocks healthy
 * leases: see EtcdClient.
 */
const ONCE: Policy = {
  _altReturn: undefined as never,
  onSuccess: () => ({ dispose: () => undefined }),
  onFailure: () => ({ dispose: () => undefined }),
  execute: async (run, signal = NEVER) => run({ signal }),
};

let connections = 0;

/**
 * A client of etcd3 for one member. Loads etcd3 when the first one is made: that takes longer than loading the rest of this
 * library, and other transports do not need it.
 */
export async function newClient(host: string, options: CheckedConnect, pingMs: number): Promise<Etcd3> {
  const etcd3 = await import("etcd3").catch((cause: unknown) => {
    throw new Error('The transport "etcd3" needs the package etcd3: npm install etcd3', { cause });
  });
  return new etcd3.Etcd3(clientOptions(host, options, pingMs));
}

function clientOptions(host: string, options: CheckedConnect, pingMs: number): IOptions {
  const { credentials } = options;
  return {
    hosts: host,
    ...(credentials && {
      credentials: {
        rootCertificate: Buffer.from(credentials.rootCertificate),
        ...(credentials.privateKey && { privateKey: Buffer.from(credentials.privateKey) }),
        ...(credentials.certChain && { certChain: Buffer.from(credentials.certChain) }),
      },
    }),
    grpcOptions: {
      ...GRPC_OPTIONS,
      ...(credentials?.serverName && { "grpc.ssl_target_name_override": credentials.serverName }),
      ...options.grpcOptions,
      "grpc.keepalive_time_ms": pingMs,
      ...NO_RETRIES,
      // grpc-js shares a connection between channels with equal options. A unique number makes this one new, so that the
      // next member reaches another backend behind the same address, while its services still share one connection.
      "leasehold.connection": ++connections,
    },
    faultHandling: { global: ONCE, host: () => ONCE },
  };
}
