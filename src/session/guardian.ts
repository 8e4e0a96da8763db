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
import type { Lease } from "./lease.js";

/** How the guardian reaches a cluster: options of `connect`. */
export interface Reach extends Pick<
  CheckedConnect,
  "hosts" | "auth" | "requestTimeoutMs" | "connectTimeoutMs"
> {
  /** As text. */
  readonly credentials: Readonly<Record<keyof CheckedCredentials, string | undefined>> | undefined;
}

/** What is known of a lease that is guarded. */
export interface GuardedLease {
  readonly ttlMs: number;
  /** It is revoked so long after the end of this other one, as the delay lease of a session. */
  readonly after?: { readonly lease: string; readonly delayMs: number } | undefined;
}

/** A line of its input, in JSON. Leases are in hexadecimal. */
export type GuardianOrder =
  | { readonly do: "begin"; readonly parent: number | undefined }
  | { readonly do: "reach"; readonly cluster: number; readonly reach: Reach }
  | ({ readonly do: "guard"; readonly cluster: number; readonly lease: string } & GuardedLease)
  | { readonly do: "forget"; readonly lease: string };

/** In the package, beside this module of a build, and from the sources. */
const PROGRAMS = ["./leasehold-guardian.js", "./guardian-program.js", "../../dist/leasehold-guardian.js"];
/** Certificates are read so often, at a renewal. */
const READ_MS = 10_000;
/** From one start to the next, if it ends at once. */
const RESTART_MS = 5000;
/** Until a guardian that does not answer is killed. */
const FORGET_MS = 2000;
/** What Node.js may need to start, and to trust the same authorities. */
const PASSED = [
  ...["LD_LIBRARY_PATH", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA"],
  ...["SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF"],
];
/** The flags of Node.js for the same purpose. */
const TRUST =
  /^--(?:use-(?:openssl|bundled|system)-ca$|openssl-[\w-]+(?:=|$)|tls-[\w.-]+(?:=|$)|(?:enable|force)-fips$)/;

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

/** Throws, or tells by its event "error", where the system starts no further process. */
function started(program: string): ChildProcess {
  const { spawn } = process.getBuiltinModule("node:child_process");
  const passed = PASSED.filter((name) => process.env[name] !== undefined);
  const words = [...process.execArgv, ...(process.env["NODE_OPTIONS"] ?? "").split(/\s+/)];
  const flags = words.filter((word) => TRUST.test(word));
  return spawn(process.execPath, [...flags, program], {
    ...{ detached: true, windowsHide: true, stdio: ["pipe", "pipe", "ignore"] },
    env: {
      ...Object.fromEntries(passed.map((name) => [name, process.env[name]])),
      ...(process.versions["electron"] !== undefined && { ELECTRON_RUN_AS_NODE: "1" }),
    },
  });
}

/** The process, from the first lease on. */
class GuardianProcess {
  #child: ChildProcess | undefined;
  /** By lease: called when it has been forgotten. */
  readonly #forgetting = new Map<string, () => void>();
  hasEnded = false;
  #dismissed = false;

  constructor(program: string) {
    try {
      this.#child = started(program);
      this.#attend(this.#child);
    } catch {
      this.#ended();
    }
    const { isMainThread } = process.getBuiltinModule("node:worker_threads");
    // A worker thread ends without its process. On Windows, the parent of a process stays the same for ever.
    const isChecked = isMainThread && process.platform !== "win32";
    this.order({ do: "begin", parent: isChecked ? process.pid : undefined });
  }

  #attend(child: ChildProcess): void {
    const { createInterface } = process.getBuiltinModule("node:readline");
    const { stdin, stdout } = child;
    child.on("error", () => this.#ended()).on("exit", () => this.#ended());
    stdin?.on("error", () => {});
    if (stdout)
      createInterface({ input: stdout.on("error", () => {}) }).on("line", (lease) => this.#forgotten(lease));
    // It does not keep this process alive.
    child.unref();
    for (const end of [stdin, stdout]) (end as Socket | null)?.unref();
  }

  #ended(): void {
    if (!this.hasEnded && !this.#dismissed) process.emitWarning(UNGUARDED, WARNING);
    this.hasEnded = true;
    for (const lease of [...this.#forgetting.keys()]) this.#forgotten(lease);
  }

  order(order: GuardianOrder): void {
    if (!this.hasEnded) this.#child?.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  /** Resolves when it cannot revoke the lease any more. */
  forget(lease: string, clock: Clock): Promise<void> {
    if (this.hasEnded) return Promise.resolve();
    return new Promise((resolve) => {
      // One that does not answer could still revoke the lease.
      const kill = (): void => void (this.#forgetting.has(lease) && this.#child?.kill("SIGKILL"));
      // If this process was blocked meanwhile, the answer has arrived, and was not read yet.
      const timer = clock.after(FORGET_MS, () => void clock.afterPendingEvents(kill));
      this.#forgetting.set(lease, () => {
        timer.cancel();
        resolve();
      });
      this.order({ do: "forget", lease });
    });
  }

  end(): void {
    this.#dismissed = true;
    this.#child?.stdin?.end();
  }

  #forgotten(lease: string): void {
    this.#forgetting.get(lease)?.();
    this.#forgetting.delete(lease);
  }
}

/** Of this process, or of this worker thread. */
let running: GuardianProcess | undefined;
/** When it was started, on the monotonic clock. */
let startedAt = -Infinity;
const guarded = new Set<Guardian>();
let clusters = 0;

/** The guardian of the leases of one cluster. */
export class Guardian {
  readonly #program = programOf();
  readonly #cluster = ++clusters;
  /** By ID, in hexadecimal. */
  readonly #leases = new Map<string, GuardedLease>();
  #told: { readonly process: GuardianProcess; readonly reach: string } | undefined;
  /** When the certificates were read, on the monotonic clock. */
  #readAt = -Infinity;

  /** @throws {RangeError} where no guardian can be started. */
  constructor(
    private readonly options: CheckedConnect,
    private readonly client: Pick<EtcdClient, "pool">,
    private readonly clock: Clock,
  ) {}

  /** Begins to guard a lease, and the one that must outlive it. The first one starts the process. */
  guard({ leaseId, ttlMs, delay }: Pick<Lease, "leaseId" | "ttlMs" | "delay">): void {
    this.#guard(leaseId, { ttlMs });
    if (!delay) return;
    const after = { lease: leaseId.toString(16), delayMs: delay.delayMs };
    this.#guard(delay.leaseId, { ttlMs: delay.ttlMs, after });
  }

  #guard(leaseId: bigint, guardedLease: GuardedLease): void {
    const lease = leaseId.toString(16);
    this.#leases.set(lease, guardedLease);
    guarded.add(this);
    if (this.#refreshed()) running?.order({ do: "guard", cluster: this.#cluster, lease, ...guardedLease });
  }

  /** Resolves when the lease will not be revoked by the guardian any more, nor the one that must outlive it. */
  async forget({ leaseId, delay }: Pick<Lease, "leaseId" | "delay">): Promise<void> {
    await Promise.all([this.#forget(leaseId), delay && this.#forget(delay.leaseId)]);
  }

  async #forget(leaseId: bigint): Promise<void> {
    const lease = leaseId.toString(16);
    if (!this.#leases.delete(lease)) return;
    const forgotten = running?.forget(lease, this.clock);
    if (this.#leases.size === 0) {
      guarded.delete(this);
      // So has it the cluster, with its last lease.
      this.#told = undefined;
    }
    await forgotten;
    // The next lease starts another one.
    if (guarded.size > 0) return;
    running?.end();
    running = undefined;
  }

  /** Tells how etcd is reached now: certificates are exchanged, and members. Starts the process again if it has ended. */
  refresh(): void {
    if (this.#leases.size > 0) this.#refreshed();
  }

  /** False: a new process was started, and has been told everything. */
  #refreshed(): boolean {
    const at = this.clock.monotonic();
    if (running === undefined || (running.hasEnded && at - startedAt >= RESTART_MS)) {
      startedAt = at;
      running = inOwnContext(() => new GuardianProcess(this.#program));
    }
    if (running.hasEnded) return true;
    const now = { process: running, reach: JSON.stringify(this.#reach(at)) };
    const isNew = this.#told?.process !== now.process;
    if (!isNew && this.#told?.reach === now.reach) return true;
    this.#told = now;
    now.process.order({ do: "reach", cluster: this.#cluster, reach: JSON.parse(now.reach) as Reach });
    if (!isNew) return true;
    for (const [lease, guardedLease] of this.#leases)
      now.process.order({ do: "guard", cluster: this.#cluster, lease, ...guardedLease });
    return false;
  }

  #reach(at: number): Reach {
    const { hosts, auth, requestTimeoutMs, connectTimeoutMs } = this.options;
    const isOld = at - this.#readAt >= READ_MS;
    if (isOld) this.#readAt = at;
    // A connection that lasts reads no certificates, and the guardian will open another one.
    const pem = this.client.pool.credentials(isOld);
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
