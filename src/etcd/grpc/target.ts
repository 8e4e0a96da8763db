import type { CheckedConnect } from "../../options/connect.js";
import type { Target } from "../http2/socket.js";

/** Where the connections to `host` go: `http(s)://name:port`, or without a scheme; TLS with `https://` or credentials. */
export function targetOf(host: string, credentials: CheckedConnect["credentials"]): Omit<Target, "turn"> {
  const [, scheme, name = "", port] = /^(?:(https?):\/\/)?(.*):(\d+)$/.exec(host) ?? [];
  const secure = scheme === "https" || credentials !== undefined;
  const tls = secure
    ? {
        ca: credentials?.rootCertificate,
        key: credentials?.privateKey,
        cert: credentials?.certChain,
        serverName: credentials?.serverName,
      }
    : undefined;
  return { hostname: name.replace(/^\[(.*)\]$/, "$1"), port: Number(port), tls };
}
