// `connect({ guardian: true })`: a small process revokes the leases of this one as soon as this one has ended, however that came:
// by a crash, `kill -9`, a lack of memory or `process.exit()`. The next waiters then do not wait for the TTL.
// - It has the read end of a pipe, and the kernel closes the other end with this process. So a process that is stopped, blocked or in
//   a debugger loses nothing by it, whatever its event loop does.
// - What it must know, passwords and keys included, reaches it through that pipe: others see neither arguments nor environment.
// - A lease that is given up without a revocation is forgotten by it first: `forget` resolves when it has said so.
// - One serves all clusters of this process, or of a worker thread, which ends by itself. It ends with the last of them.
import type { ChildProcess } from "node:child_process";
import type { Socket } from "node:net";
import type { EtcdClient } from "../etcd/client.js";
import { rangeError } from "../options/check.js";
import type { CheckedConnect, CheckedCredentials } from "../options/connect.js";
import type { Clock } from "../util/clock.js";
import { inOwnContext } from "../util/own-context.js";

/** How the guardian reaches a cluster: options of `connect`. */
export interface Reach extends Pick<
  CheckedConnect,
  "hosts" | "auth" | "requestTimeoutMs" | "connectTimeoutMs"
> {
  /** As text. */
  readonly credentials: Readonly<Record<keyof CheckedCredentials, string | undefined>> | undefined;
}

/** A line of its input, in JSON. Leases are in hexadecimal. */
export type GuardianOrder =
  | { readonly do: "begin"; readonly parent: number | undefined }
  | { readonly do: "reach"; readonly cluster: number; readonly reach: Reach }
  | { readonly do: "guard"; readonly cluster: number; readonly lease: string; readonly ttlMs: number }
  | { readonly do: "forget"; readonly lease: string };

/** In the package, beside this module of a build, and from the sources. */
const PROGRAMS = ["./leasehold-guardian.js", "./guardian-program.js", "../../dist/leasehold-guardian.js"];
/** Until a guardian that does not answer is killed. */
const FORGET_MS = 2000;
/** What Node.js may need to start, and to trust the same authorities. */
const PASSED = ["LD_LIBRARY_PATH", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF"];

/** @throws {RangeError} where no guardian can be started. */
function programOf(): string {
  const { existsSync } = process.getBuiltinModule("node:fs");
  const { fileURLToPath } = process.getBuiltinModule("node:url");
  const path = process.getBuiltinModule("node:path");
  // By hand: bundlers take new URL(…, import.meta.url) for a file of theirs.
  const folder = path.dirname(fileURLToPath(import.meta.url));
  const file = PROGRAMS.map((name) => path.join(folder, name)).find((each) => existsSync(each));
  const rule = "false or left out here:";
  if (file === undefined)
    throw rangeError(
      "guardian",
      `${rule} leasehold-guardian.js is not beside leasehold, as in a bundle`,
      true,
    );
  const { isSea } = (process.getBuiltinModule("node:sea") as { isSea?: () => boolean } | undefined) ?? {};
  if (process.versions["deno"] !== undefined || isSea?.() === true)
    throw rangeError("guardian", `${rule} this program is no Node.js that could start another one`, true);
  return file;
}

const UNGUARDED =
  "The guardian has ended. The next renewal starts another one; until then, a crash frees no lease before its TTL.";
const WARNING = { type: "LeaseholdWarning", code: "GUARDIAN_ENDED" };

/** The process, from the first lease on. */
class GuardianProcess {
  readonly #child: ChildProcess;
  /** By lease: called when it has been forgotten. */
  readonly #forgetting = new Map<string, () => void>();
  hasEnded = false;
  #dismissed = false;

  constructor(program: string) {
    const passed = PASSED.filter((name) => process.env[name] !== undefined);
    const { spawn } = process.getBuiltinModule("node:child_process");
    const { isMainThread } = process.getBuiltinModule("node:worker_threads");
    const { createInterface } = process.getBuiltinModule("node:readline");
    const path = process.getBuiltinModule("node:path");
    this.#child = spawn(process.execPath, [program], {
      ...{ detached: true, windowsHide: true, stdio: ["pipe", "pipe", "ignore"] },
      cwd: path.parse(program).root,
      env: {
        ...Object.fromEntries(passed.map((name) => [name, process.env[name]])),
        ...(process.versions["electron"] !== undefined && { ELECTRON_RUN_AS_NODE: "1" }),
      },
    });
    const ended = (): void => {
      if (!this.hasEnded && !this.#dismissed) process.emitWarning(UNGUARDED, WARNING);
      this.hasEnded = true;
      for (const lease of [...this.#forgetting.keys()]) this.#forgotten(lease);
    };
    this.#child.on("error", ended).on("exit", ended);
    const { stdin, stdout } = this.#child;
    stdin?.on("error", () => {});
    if (stdout)
      createInterface({ input: stdout.on("error", () => {}) }).on("line", (lease) => this.#forgotten(lease));
    // It does not keep this process alive.
    this.#child.unref();
    for (const end of [stdin, stdout]) (end as Socket | null)?.unref();
    // A worker thread ends without its process. On Windows, the parent of a process stays the same for ever.
    const isChecked = isMainThread && process.platform !== "win32";
    this.order({ do: "begin", parent: isChecked ? process.pid : undefined });
  }

  order(order: GuardianOrder): void {
    if (!this.hasEnded) this.#child.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  /** Resolves when it cannot revoke the lease any more. */
  forget(lease: string, clock: Clock): Promise<void> {
    if (this.hasEnded) return Promise.resolve();
    return new Promise((resolve) => {
      // One that does not answer could still revoke the lease.
      const timer = clock.after(FORGET_MS, () => void this.#child.kill("SIGKILL"));
      this.#forgetting.set(lease, () => {
        timer.cancel();
        resolve();
      });
      this.order({ do: "forget", lease });
    });
  }

  end(): void {
    this.#dismissed = true;
    this.#child.stdin?.end();
  }

  #forgotten(lease: string): void {
    this.#forgetting.get(lease)?.();
    this.#forgetting.delete(lease);
  }
}

/** Of this process, or of this worker thread. */
let running: GuardianProcess | undefined;
const guarded = new Set<Guardian>();
let clusters = 0;

/** The guardian of the leases of one cluster. */
export class Guardian {
  readonly #program = programOf();
  readonly #cluster = ++clusters;
  /** By ID, in hexadecimal: the TTL. */
  readonly #leases = new Map<string, number>();
  #told: { readonly process: GuardianProcess; readonly reach: string } | undefined;

  /** @throws {RangeError} where no guardian can be started. */
  constructor(
    private readonly options: CheckedConnect,
    private readonly client: Pick<EtcdClient, "pool">,
    private readonly clock: Clock,
  ) {}

  /** Begins to guard a lease. The first one starts the process. */
  guard(leaseId: bigint, ttlMs: number): void {
    const lease = leaseId.toString(16);
    this.#leases.set(lease, ttlMs);
    guarded.add(this);
    if (this.#refreshed()) running?.order({ do: "guard", cluster: this.#cluster, lease, ttlMs });
  }

  /** Resolves when the lease will not be revoked by the guardian any more. */
  async forget(leaseId: bigint): Promise<void> {
    const lease = leaseId.toString(16);
    if (!this.#leases.delete(lease)) return;
    const forgotten = running?.forget(lease, this.clock);
    if (this.#leases.size === 0) guarded.delete(this);
    await forgotten;
    // The next lease starts another one.
    if (guarded.size > 0) return;
    running?.end();
    running = undefined;
  }

  /** Tells how etcd is reached now: certificates are exchanged, and members. Starts the process again if it has ended. */
  refresh(): void {
    this.#refreshed();
  }

  /** False: a new process was started, and has been told everything. */
  #refreshed(): boolean {
    const hadEnded = running === undefined || running.hasEnded;
    if (hadEnded) running = inOwnContext(() => new GuardianProcess(this.#program));
    const now = { process: running as GuardianProcess, reach: JSON.stringify(this.#reach()) };
    const isNew = this.#told?.process !== now.process;
    if (!isNew && this.#told?.reach === now.reach) return true;
    this.#told = now;
    now.process.order({ do: "reach", cluster: this.#cluster, reach: JSON.parse(now.reach) as Reach });
    if (!isNew) return true;
    for (const [lease, ttlMs] of this.#leases)
      now.process.order({ do: "guard", cluster: this.#cluster, lease, ttlMs });
    return false;
  }

  #reach(): Reach {
    const { hosts, auth, requestTimeoutMs, connectTimeoutMs } = this.options;
    const pem = this.client.pool.credentials;
    const credentials = pem && {
      rootCertificate: textOf(pem.rootCertificate),
      privateKey: textOf(pem.privateKey),
      certChain: textOf(pem.certChain),
      serverName: pem.serverName,
    };
    return { hosts, auth, requestTimeoutMs, connectTimeoutMs, credentials };
  }
}

const textOf = (pem: Uint8Array | undefined): string | undefined => pem && Buffer.from(pem).toString();
