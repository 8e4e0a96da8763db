// The built page, served by a process of its own.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { owned } from "../programs/owned.js";
import { Said } from "../programs/said.js";

const PROGRAM = fileURLToPath(new URL("serve.js", import.meta.url));

export interface ServeSetting {
  readonly hosts: readonly string[];
  readonly prefix?: string;
  readonly release?: boolean;
  readonly port?: number;
}

export class PageServer {
  private constructor(
    private readonly child: ChildProcess,
    private readonly said: Said,
    readonly port: number,
  ) {}

  get url(): string {
    return `http://127.0.0.1:${this.port}/`;
  }

  static async start({ hosts, prefix = "", release = false, port = 0 }: ServeSetting): Promise<PageServer> {
    const args = [PROGRAM, hosts.join(","), String(port), prefix, ...(release ? ["release"] : [])];
    const child = owned(spawn(process.execPath, args, { stdio: "pipe" }));
    const said = new Said(child);
    return new PageServer(child, said, Number((await said.next()).split(" ")[1]));
  }

  /** The processor time that it has used, in milliseconds, and its memory, in MiB. */
  async used(): Promise<{ readonly ms: number; readonly mib: number }> {
    this.child.stdin?.write("\n");
    const [, us, bytes] = /used (\d+) .*?(\d+) bytes/.exec(await this.said.next()) ?? [];
    return { ms: Number(us) / 1000, mib: Number(bytes) / 2 ** 20 };
  }

  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = once(this.child, "exit");
    this.child.kill("SIGKILL");
    await ended;
  }
}
