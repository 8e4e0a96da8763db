import type { EtcdClient } from "../etcd/client.js";
import type { CheckedConnect, CheckedCredentials, CheckedUser } from "../base/options/connect.js";

/** Certificates as text, for another process or thread. */
export type PemText = Readonly<Record<keyof CheckedCredentials, string | undefined>>;

/** They are read again so often. */
const READ_MS = 10_000;

/** The certificates, user and password of a cluster as they are now: they may be exchanged while one connection lasts, and another is opened elsewhere. */
export class Certificates {
  /** On the monotonic clock. */
  #readAt = -Infinity;

  constructor(private readonly client: Pick<EtcdClient, "pool">) {}

  /** `again`: they are read however old they are, as those of before may be the reason why a connection has failed. */
  at(
    now: number,
    again = false,
  ): { readonly credentials: PemText | undefined; readonly auth: CheckedUser | undefined } {
    const isOld = again || now - this.#readAt >= READ_MS;
    if (isOld) this.#readAt = now;
    const { pool } = this.client;
    const pem = pool.credentials(isOld);
    const credentials = pem && {
      rootCertificate: textOf(pem.rootCertificate),
      privateKey: textOf(pem.privateKey),
      certChain: textOf(pem.certChain),
      serverName: pem.serverName,
    };
    return { credentials, auth: pool.user(isOld) };
  }
}

const textOf = (pem: Uint8Array | undefined): string | undefined => pem && Buffer.from(pem).toString();

/** The options of `connect` that say how etcd is reached, for another process or thread. */
export function reachOf(options: CheckedConnect): Readonly<Record<string, unknown>> {
  const { transport, followMembers, requestTimeoutMs } = options;
  // As it was given: a list that is found in DNS is found there as well.
  const any = { hosts: [...options.hosts], transport, followMembers, requestTimeoutMs };
  if (transport === "etcd3") return any;
  const { pingIntervalMs, pingTimeoutMs, connectTimeoutMs } = options;
  return { ...any, pingIntervalMs, pingTimeoutMs, connectTimeoutMs };
}

/** With --permission, Node.js throws where it may not read. */
function isThere(file: string, exists: (file: string) => boolean): boolean {
  try {
    return exists(file);
  } catch {
    return false;
  }
}

/** A program of the package: the file of the entry, and that of the module. */
export interface PackageProgram {
  readonly entry: string;
  readonly module: string;
}

/** The first keeps leasehold out of the bundle; the second copies the programs, whose names no tracer of files finds. */
const IN_NEXT =
  `in Next.js: serverExternalPackages: ["leasehold"], and with output: "standalone" also ` +
  `outputFileTracingIncludes: { "/*": ["./node_modules/leasehold/dist/*.js"] }`;

/**
 * Its file: beside this module in a build, and from the sources.
 * @throws {RangeError} that names the option where it cannot be started.
 */
export function programOf({ entry, module }: PackageProgram, option: string): string {
  const { existsSync } = process.getBuiltinModule("node:fs");
  const { fileURLToPath } = process.getBuiltinModule("node:url");
  const path = process.getBuiltinModule("node:path");
  const { isSea } = (process.getBuiltinModule("node:sea") as { isSea?: () => boolean } | undefined) ?? {};
  if (process.versions["deno"] !== undefined || isSea?.() === true)
    throw new RangeError(`Option ${option} needs Node.js: this program cannot start another one`);
  // By hand: bundlers take new URL(…, import.meta.url) for a file of theirs. Some of them leave no URL.
  const url: unknown = import.meta.url;
  const folders =
    typeof url === "string" && url.startsWith("file:") ? [path.dirname(fileURLToPath(url))] : [];
  const names = [`./${entry}`, `./${module}`, `../../dist/${entry}`];
  const files = folders.flatMap((folder) => names.map((name) => path.join(folder, name)));
  const file = files.find((each) => isThere(each, existsSync));
  if (file === undefined)
    throw new RangeError(
      `Option ${option} needs ${entry} beside leasehold, which a bundler has left out (${IN_NEXT})`,
    );
  return file;
}
