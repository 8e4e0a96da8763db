import type { ConnectOptions } from "../../index.js";
import { checkNoDiscovery, etcdctlConnection, variableOf } from "../../options/etcdctl.js";
import type { Flags, Given } from "./command.js";
import type { Io } from "./io.js";

/** The flags that every command has: those of etcdctl, with its names, and --server-name. */
export const CONNECTION_FLAGS = {
  endpoints: {
    value: "HOST:PORT,...",
    text: "members of etcd; ETCDCTL_ENDPOINTS; default 127.0.0.1:2379",
  },
  cacert: { value: "FILE", text: "certificates of the authorities, PEM; ETCDCTL_CACERT" },
  cert: { value: "FILE", text: "certificate of this client, PEM; ETCDCTL_CERT" },
  key: { value: "FILE", text: "key of this client, PEM; ETCDCTL_KEY" },
  "server-name": { value: "HOST", text: "name in the members' certificates, if endpoints are addresses" },
  user: { value: "NAME[:PASSWORD]", text: "user of etcd; ETCDCTL_USER" },
  password: { value: "TEXT", text: "its password; better ETCDCTL_PASSWORD, which other users cannot see" },
} as const satisfies Flags;

type ConnectionFlags = Partial<Given<typeof CONNECTION_FLAGS>>;

/** The options of `connect` from the flags, or else from etcdctl's environment. */
export function connectionOf(flags: ConnectionFlags, env: Io["env"]): ConnectOptions {
  if (flags.endpoints === undefined) checkNoDiscovery(env);
  return etcdctlConnection((setting) => {
    const flag = flags[setting];
    return flag === undefined
      ? {
          name: env[variableOf(setting)] ? variableOf(setting) : `--${setting}`,
          text: env[variableOf(setting)],
        }
      : { name: `--${setting}`, text: flag };
  });
}
