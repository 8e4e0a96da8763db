// `connect({ guardian: true })`: a small process revokes the leases of this one as soon as this one has ended, however that came:
// by a crash, `kill -9`, a lack of memory or `process.exit()`. The next waiters then do not wait for the TTL.
// - It has the read end of a pipe, and the kernel closes the other end with this process. So a process that is stopped, blocked or in
//   a debugger loses nothing by it, whatever its event loop does.
// - It is a child of this process, except in PM2, which kills all descendants: there, the child starts it, and ends.
// - What it must know, passwords and keys included, reaches it through that pipe: others see neither arguments nor environment.
// - A lease that is given up without a revocation is forgotten by it first: `forget` resolves when it has said so.
// - One serves all clusters of this process, or of a worker thread, which ends by itself. It ends with the last of them.
// - One that ends is followed by another at once; after pauses that double, if they end soon or cannot be started. What is told of it, once
//   until one runs again, has what its process has said last.
import type { ChildProcess } from "node:child_process";
import type { Socket } from "node:net";
import type { Writable } from "node:stream";
import type { EtcdClient } from "../etcd/client.js";
import type { CheckedConnect, CheckedUser } from "../base/options/connect.js";
import { guardianChannel } from "../base/telemetry/channels.js";
import type { GuardianHealth } from "../base/telemetry/health.js";
import { withJson } from "../base/telemetry/publish.js";
import type { Clock } from "../base/util/clock.js";
import { inOwnContext, tellOutside } from "../base/util/own-context.js";
import { Certificates, type PemText, programOf } from "./reach.js";

/** How the guardian reaches a cluster: options of `connect`. */
export interface Reach extends Pick<CheckedConnect, "hosts" | "requestTimeoutMs" | "connectTimeoutMs"> {
  readonly credentials: PemText | undefined;
  readonly auth: CheckedUser | undefined;
}

/** A lease of a session, and the delay lease that must outlive it. */
interface SessionLease {
  readonly leaseId: bigint;
  readonly ttlMs: number;
  readonly delay: { readonly leaseId: bigint; readonly ttlMs: number; readonly delayMs: number } | undefined;
}

/** What is known of a lease that is guarded. */
export interface GuardedLease {
  readonly ttlMs: number;
  /** The lease is revoked so long after the end of this other one, as the delay lease of a session. */
  readonly after?: { readonly lease: string; readonly delayMs: number } | undefined;
}

/** A line of its input, in JSON. Leases are in hexadecimal. */
export type GuardianOrder =
  | { readonly do: "begin"; readonly parent: number | undefined; readonly apart: boolean }
  | { readonly do: "reach"; readonly cluster: number; readonly reach: Reach }
  | ({ readonly do: "guard"; readonly cluster: number; readonly lease: string } & GuardedLease)
  | { readonly do: "forget"; readonly lease: string };

const PROGRAM = { entry: "leasehold-guardian.js", module: "guardian-program.js" };
/** One that ends within so long has ended soon. */
const SOON_MS = 5000;
/** From the end of one that has ended soon to the next start: it doubles, up to the second. */
const [PAUSE_MS, MAX_PAUSE_MS] = [100, 60_000];
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

/** A process manager that kills a process with all of its descendants: the guardian must be none of them. PM2 sets this variable. */
const isApart = (): boolean => process.env["pm_id"] !== undefined;

const UNGUARDED = "Until another one runs, a lease outlives a crash until its TTL has passed.";
const WARNING = { type: "LeaseholdWarning", code: "GUARDIAN_ENDED" };

/** The end of what it writes to its standard error. */
const KEPT_CHARACTERS = 2000;

/** What a program of Node.js has said about its end. */
function causeIn(text: string): string | undefined {
  const lines = text.split("\n").map((line) => line.trim());
  return lines.find((line) => /^(?:\w+ )?\w*Error\b/.test(line)) ?? lines.findLast((line) => line !== "");
}

/** @throws {RangeError} where it could not be started. */
function programThatStarts(): string {
  const { permission } = process as { permission?: { has(scope: string): boolean } };
  if (permission?.has("child") === false)
    throw new RangeError("Option guardian needs Node.js's flag --allow-child-process here");
  const file = programOf(PROGRAM, "guardian");
  // Yarn's Plug'n'Play: no other process knows its virtual folders and its zip files.
  const pnp = (process.getBuiltinModule("node:module") as Partial<PnpModule>).findPnpApi?.(file);
  const real = pnp?.resolveVirtual(file) ?? file;
  if (pnp && /\.zip[\\/]/.test(real))
    throw new RangeError("Option guardian cannot start a program in a zip file: run yarn unplug leasehold");
  return real;
}

/** The part of `node:module` that Yarn's Plug'n'Play adds. */
interface PnpModule {
  findPnpApi(file: string): { resolveVirtual(file: string): string | null } | null;
}

/** Throws, or tells by its event "error", where the system starts no further process. */
function started(program: string): ChildProcess {
  const { spawn } = process.getBuiltinModule("node:child_process");
  const passed = PASSED.filter((name) => process.env[name] !== undefined);
  const words = [...process.execArgv, ...(process.env["NODE_OPTIONS"] ?? "").split(/\s+/)];
  const flags = words.filter((word) => TRUST.test(word));
  const apart = isApart();
  return spawn(process.execPath, [...flags, program, ...(apart ? ["apart"] : [])], {
    detached: true,
    windowsHide: true,
    // Node.js closes the standard input of a child that has ended, and this one ends when it has started the guardian.
    stdio: apart ? ["ignore", "pipe", "pipe", "pipe"] : ["pipe", "pipe", "pipe"],
    env: {
      ...Object.fromEntries(passed.map((name) => [name, process.env[name]])),
      ...(process.versions["electron"] !== undefined && { ELECTRON_RUN_AS_NODE: "1" }),
    },
  });
}

interface GuardianHandlers {
  /** The guardian has begun. */
  runs(): void;
  /** Called once, not at once, and not after `end()`. */
  ended(why: string): void;
}

/** The process, from the first lease on. */
class GuardianProcess {
  #orders: Writable | undefined;
  #pid: number | undefined;
  /** By lease: called when it has been forgotten. */
  readonly #forgetting = new Map<string, () => void>();
  #hasEnded = false;
  #isDismissed = false;
  #said = "";

  constructor(
    program: string,
    private readonly handlers: GuardianHandlers,
  ) {
    try {
      this.#attend(started(program));
    } catch (error) {
      process.nextTick(() => this.#ended((error as Error).message));
    }
    const { isMainThread } = process.getBuiltinModule("node:worker_threads");
    // A worker thread ends without its process. On Windows, the parent of a process stays the same for ever.
    const isChecked = isMainThread && process.platform !== "win32";
    this.order({ do: "begin", parent: isChecked ? process.pid : undefined, apart: isApart() });
  }

  #attend(child: ChildProcess): void {
    const { createInterface } = process.getBuiltinModule("node:readline");
    const { stdin, stdout, stderr, stdio } = child;
    this.#pid = child.pid;
    child.on("error", ({ message }) => this.#ended(message));
    // Without a free descriptor, Node.js makes no pipes, and tells why by that event.
    const pipes = stdio as typeof stdio | undefined;
    this.#orders = (stdin as typeof stdin | undefined) ?? (pipes?.[3] as Writable | undefined);
    this.#orders?.on("error", () => {});
    stderr?.on("error", () => {}).on("data", (text) => this.#says(String(text)));
    // The child may have started another process, which is the guardian. The one that ends last has ended its output.
    stdout?.on("error", () => {}).on("close", () => this.#forgetsAll());
    child.on("close", (code, signal) => this.#ended(this.#causeOf(code, signal)));
    if (stdout) createInterface({ input: stdout }).on("line", (line) => this.#heard(line));
    // The guardian does not keep this process alive.
    child.unref();
    for (const end of [this.#orders, stdout, stderr]) (end as Socket | null | undefined)?.unref();
  }

  #says(text: string): void {
    this.#said = (this.#said + text).slice(-KEPT_CHARACTERS);
  }

  #causeOf(code: number | null, signal: NodeJS.Signals | null): string {
    return (
      causeIn(this.#said) ??
      (signal !== null ? `it was ended by ${signal}` : code ? `exit code ${code}` : "it was ended")
    );
  }

  /** The guardian revokes nothing any more. Why it has ended is known a moment later. */
  #forgetsAll(): void {
    this.#hasEnded = true;
    for (const lease of [...this.#forgetting.keys()]) this.#forgotten(lease);
  }

  #ended(why: string): void {
    this.#forgetsAll();
    if (!this.#isDismissed) this.handlers.ended(why);
    this.#isDismissed = true;
  }

  order(order: GuardianOrder): void {
    if (!this.#hasEnded) this.#orders?.write(`${JSON.stringify(order)}\n`);
  }

  /** Resolves when it cannot revoke the lease any more. Its pipes keep no process alive, so a timer does until then. */
  forget(lease: string, clock: Clock): Promise<void> {
    if (this.#hasEnded) return Promise.resolve();
    return new Promise((resolve) => {
      const kill = (): void => {
        if (!this.#forgetting.has(lease)) return;
        // One that does not answer could still revoke the lease.
        this.#kill();
        // Where the system is slow to end it, it runs nothing any more.
        timer = clock.after(FORGET_MS, () => this.#forgotten(lease));
      };
      // If this process was blocked meanwhile, the answer has arrived, and was not read yet.
      let timer = clock.after(FORGET_MS, () => void clock.afterPendingEvents(kill));
      this.#forgetting.set(lease, () => {
        timer.cancel();
        resolve();
      });
      this.order({ do: "forget", lease });
    });
  }

  end(): void {
    this.#isDismissed = true;
    this.#orders?.end();
  }

  #kill(): void {
    try {
      if (this.#pid !== undefined && !this.#hasEnded) process.kill(this.#pid, "SIGKILL");
    } catch {
      // The guardian has ended meanwhile.
    }
  }

  /** `runs`; `pid` and its number, if it is not the child itself; or a lease. */
  #heard(line: string): void {
    if (line === "runs") this.handlers.runs();
    else if (line.startsWith("pid ")) this.#pid = Number(line.slice(4));
    else this.#forgotten(line);
  }

  #forgotten(lease: string): void {
    this.#forgetting.get(lease)?.();
    this.#forgetting.delete(lease);
  }
}

/** The guardian of this process, or of this worker thread. */
let running: GuardianProcess | undefined;
/** When it was started, on the monotonic clock. */
let startedAt = -Infinity;
/** How many have ended soon, one after the other, and when the next one may be started. */
let soon = { ends: 0, nextAt: -Infinity };
/** Why there is none, until one runs. */
let failure: Error | undefined;
const guarded = new Set<Guardian>();
let clusters = 0;

function start(program: string, clock: Clock): GuardianProcess {
  startedAt = clock.monotonic();
  const isRunning = (): boolean => running === own;
  const own: GuardianProcess = new GuardianProcess(program, {
    runs: () => isRunning() && tell(undefined),
    ended: (why) => isRunning() && ended(why, clock),
  });
  return own;
}

function ended(why: string, clock: Clock): void {
  running = undefined;
  const at = clock.monotonic();
  const ends = at - startedAt < SOON_MS ? soon.ends + 1 : 0;
  const pauseMs = ends === 0 ? 0 : Math.min(PAUSE_MS * 2 ** (ends - 1), MAX_PAUSE_MS);
  soon = { ends, nextAt: at + pauseMs };
  clock.after(pauseMs + 1, () => guarded.forEach((each) => each.refresh())).unref?.();
  // Without a lease to guard, it was ended by `forget`, and nobody needs another one.
  if (failure === undefined && guarded.size > 0) tell(new Error(why));
}

/** What has become of the guardian: why there is none, or that one runs. */
function tell(error: Error | undefined): void {
  failure = error;
  if (error !== undefined && !guardianChannel.hasSubscribers)
    process.emitWarning(`The guardian has ended: ${error.message}. ${UNGUARDED}`, WARNING);
  for (const each of guarded) each.tell();
}

/** The guardian of the leases of one cluster. */
export class Guardian {
  readonly #program = programThatStarts();
  readonly #cluster = ++clusters;
  /** By ID, in hexadecimal. */
  readonly #leases = new Map<string, GuardedLease>();
  #told: { readonly process: GuardianProcess; readonly reach: string } | undefined;
  readonly #certificates: Certificates;
  /** As it was published last. */
  #failure: Error | undefined;

  /** @throws {RangeError} where no guardian can be started. */
  constructor(
    private readonly options: CheckedConnect,
    client: Pick<EtcdClient, "pool">,
    private readonly clock: Clock,
  ) {
    this.#certificates = new Certificates(client);
  }

  get health(): GuardianHealth {
    const error = guarded.has(this) ? failure : undefined;
    return { ok: error === undefined, error: error?.message };
  }

  tell(): void {
    if (this.#failure === failure) return;
    this.#failure = failure;
    if (guardianChannel.hasSubscribers)
      tellOutside(() => guardianChannel.publish(withJson({ hosts: this.options.hosts, error: failure })));
  }

  /** Begins to guard a lease, and the one that must outlive it. The first one starts the process. */
  guard({ leaseId, ttlMs, delay }: SessionLease): void {
    this.#guard(leaseId, { ttlMs });
    if (!delay) return;
    const after = { lease: leaseId.toString(16), delayMs: delay.delayMs };
    this.#guard(delay.leaseId, { ttlMs: delay.ttlMs, after });
  }

  #guard(leaseId: bigint, guardedLease: GuardedLease): void {
    const lease = leaseId.toString(16);
    this.#leases.set(lease, guardedLease);
    guarded.add(this);
    this.tell();
    if (this.#refreshed()) running?.order({ do: "guard", cluster: this.#cluster, lease, ...guardedLease });
  }

  /** Resolves when the lease will not be revoked by the guardian any more, nor the one that must outlive it. */
  async forget({ leaseId, delay }: Pick<SessionLease, "leaseId" | "delay">): Promise<void> {
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
    soon = { ends: 0, nextAt: -Infinity };
  }

  /** Tells how etcd is reached now: certificates are exchanged, and members. Starts another process if there is none. */
  refresh(): void {
    if (this.#leases.size > 0) this.#refreshed();
  }

  /** False: a new process was started, and has been told everything. */
  #refreshed(): boolean {
    const at = this.clock.monotonic();
    if (running === undefined && at < soon.nextAt) return true;
    running ??= inOwnContext(() => start(this.#program, this.clock));
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
    const { hosts, requestTimeoutMs, connectTimeoutMs } = this.options;
    // A connection that lasts reads no certificates, and the guardian will open another one.
    return { hosts, requestTimeoutMs, connectTimeoutMs, ...this.#certificates.at(at) };
  }
}
