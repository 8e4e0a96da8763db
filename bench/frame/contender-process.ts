// The controlling end of a process of contenders: see worker/protocol.ts.
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { Said } from "../../test/support/programs/said.js";
import type { Guardian } from "../../test/support/servers/guarded.js";
import type { Answer, At, Command, Connection, Look, StepName, Stopped, Task } from "../worker/protocol.js";

/** No order takes longer, even with the largest crowd: a process that is silent for this long hangs. */
const PATIENCE_MS = 60_000;

export class ContenderProcess {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #said: Said;
  readonly #exit: Promise<unknown>;

  static async start(command: readonly [string, ...string[]], guardian: Guardian): Promise<ContenderProcess> {
    const started = new ContenderProcess(command, guardian);
    await started.#answer("its start");
    return started;
  }

  private constructor([program, ...args]: readonly [string, ...string[]], guardian: Guardian) {
    this.#child = spawn(program, args, { stdio: "pipe" });
    guardian.tell(`+${this.#child.pid}`);
    this.#exit = once(this.#child, "exit").then(() => guardian.tell(`-${this.#child.pid}`));
    this.#child.stdin.on("error", () => {});
    this.#said = new Said(this.#child);
  }

  open(connection: Connection): Promise<unknown> {
    return this.#order({ do: "open", connection });
  }

  start(task: Task): Promise<unknown> {
    return this.#order({ do: "start", task });
  }

  async look(options: { readonly collect?: boolean } = {}): Promise<Look> {
    return (await this.#order({ do: "look", ...options })) as Look;
  }

  /** Resolves with the milliseconds that the step took; `NaN`: the client has no such call. */
  async step(step: StepName, at: At): Promise<number> {
    return ((await this.#order({ do: "step", step, at })) as number | null) ?? NaN;
  }

  /** Resolves with what it recorded. */
  async stop(): Promise<readonly number[]> {
    return ((await this.#order({ do: "stop" })) as Stopped).journal;
  }

  get ended(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** kill -9; resolves when it has exited. */
  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#exit;
  }

  #order(command: Command): Promise<unknown> {
    this.#child.stdin.write(`${JSON.stringify(command)}\n`);
    return this.#answer(command.do);
  }

  async #answer(to: string): Promise<unknown> {
    const limits = { signal: AbortSignal.timeout(PATIENCE_MS), what: `an answer to ${to}` };
    const answer = JSON.parse(await this.#said.next(limits)) as Answer;
    if ("error" in answer) throw new Error(answer.error);
    return answer.ok;
  }
}
