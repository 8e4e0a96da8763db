// Hosts on one machine: unnamed network namespaces, each alive as long as one process in it, so that a run that dies
// leaves nothing behind. All of them are created in the caller's namespace, which must not be the machine's own.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { promisify } from "node:util";
import { ruleset, TABLE, type Rule } from "./nft.js";

const run = promisify(execFile);
const PATIENCE = { timeout: 10_000 };

const BRIDGE = "br0";
const NETWORK = "10.77.0";
const cable = (index: number) => `v${index + 1}`;

class Namespace {
  readonly #child;

  /** `cat` ends when its standard input closes, which also happens when the starter dies. */
  constructor() {
    this.#child = spawn("unshare", ["--net", "cat"], { stdio: ["pipe", "pipe", "pipe"], detached: true });
  }

  /** The echo proves that the process is inside. Rejects with unshare's output. */
  async entered(): Promise<void> {
    const { stdin, stdout, stderr } = this.#child;
    let said = "";
    stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
    stdin.on("error", () => {}).write("inside\n");
    await Promise.race([once(stdout, "data"), once(this.#child, "close")]);
    if (this.#child.exitCode !== null) throw new Error(said.trim());
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** The command that starts a program inside; it execs that program. */
  get within(): readonly string[] {
    return ["nsenter", `--net=/proc/${this.pid}/ns/net`];
  }

  async run(program: string, args: readonly string[], input = ""): Promise<void> {
    const [command = "", ...rest] = this.within;
    const running = run(command, [...rest, program, ...args], PATIENCE);
    running.child.stdin?.on("error", () => {}).end(input);
    await running;
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.stdin.end();
    await exited;
  }
}

/** Several hosts on one bridge, to which the caller is also connected. */
export class Hosts {
  readonly #namespaces: readonly Namespace[];

  /** Rejects with the error of the kernel or of a missing program. */
  static async start(count: number): Promise<Hosts> {
    const outside = Object.values(os.networkInterfaces()).flatMap((found) => found ?? []);
    if (outside.some(({ internal }) => !internal))
      throw new Error("there is a network here that is not ours");
    const hosts = new Hosts(Array.from({ length: count }, () => new Namespace()));
    try {
      await hosts.#connect();
      return hosts;
    } catch (error) {
      await hosts.stop();
      throw error;
    }
  }

  private constructor(namespaces: readonly Namespace[]) {
    this.#namespaces = namespaces;
  }

  get addresses(): readonly string[] {
    return this.#namespaces.map((_, index) => `${NETWORK}.${index + 1}`);
  }

  /** The command that starts a program on that host. */
  within(index: number): readonly string[] {
    return this.#at(index).within;
  }

  /** Replaces all rules of that host. */
  async filter(index: number, rules: readonly Rule[]): Promise<void> {
    await this.#at(index).run("nft", ["-f", "-"], `${FRESH}${ruleset(rules)}`);
  }

  /** All links are up, without rules. */
  async heal(): Promise<void> {
    await Promise.all(
      this.#namespaces.map(async (host, index) => {
        await host.run("nft", ["-f", "-"], FRESH);
        await ip("link", "set", cable(index), "up");
      }),
    );
  }

  async unplug(index: number): Promise<void> {
    await ip("link", "set", cable(index), "down");
  }

  async stop(): Promise<void> {
    // When a namespace ends, the kernel removes its links some time later: the next run would find them.
    for (const index of this.#namespaces.keys()) await ip("link", "delete", cable(index)).catch(() => {});
    await ip("link", "delete", BRIDGE).catch(() => {});
    await Promise.all(this.#namespaces.map((host) => host.end()));
  }

  async #connect(): Promise<void> {
    await Promise.all(this.#namespaces.map((host) => host.entered()));
    await ip("link", "set", "lo", "up");
    await ip("link", "add", BRIDGE, "type", "bridge");
    await ip("link", "set", BRIDGE, "up");
    await ip("address", "add", `${NETWORK}.254/24`, "dev", BRIDGE);
    for (const index of this.#namespaces.keys()) await this.#plugIn(index);
  }

  async #plugIn(index: number): Promise<void> {
    const host = this.#at(index);
    const ends = [cable(index), "type", "veth", "peer", "name", "eth0", "netns", String(host.pid)];
    await ip("link", "add", ...ends);
    await ip("link", "set", cable(index), "master", BRIDGE, "up");
    await host.run("ip", ["link", "set", "lo", "up"]);
    await host.run("ip", ["address", "add", `${this.addresses[index]}/24`, "dev", "eth0"]);
    await host.run("ip", ["link", "set", "eth0", "up"]);
  }

  #at(index: number): Namespace {
    const host = this.#namespaces[index];
    if (host === undefined) throw new RangeError(`Expected a host from 0 on, got ${index}`);
    return host;
  }
}

/** nft has no "delete if it exists" yet: a table that was just added exists. */
const FRESH = `table inet ${TABLE}\ndelete table inet ${TABLE}\n`;

const ip = (...args: string[]) => run("ip", args, PATIENCE);
