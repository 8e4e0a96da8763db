import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { fileURLToPath } from "node:url";
import { goProgram } from "../../support/programs/go-program.js";
import { Said } from "../../support/programs/said.js";
import { linesOf } from "./export.js";
import type { ObjectKind, Operation } from "./operation.js";

/** On the history of one object in a run. */
export interface ObjectVerdict {
  readonly object: ObjectKind;
  readonly names: number;
  readonly operations: number;
  /** How many of them have no known outcome. */
  readonly unknown: number;
  /** Unknown: not decided in time. */
  readonly result: "Ok" | "Illegal" | "Unknown";
  readonly ms: number;
  readonly why?: string;
  /** The picture of an illegal history. */
  readonly file?: string;
}

export interface JudgeOptions {
  /** For one object of a run. */
  readonly timeoutSeconds: number;
  /** The folder for the pictures of illegal histories. */
  readonly pictures?: string | undefined;
}

/** The program in `go/`, which checks histories with Porcupine. */
export class PorcupineJudge {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #said: Said;

  /** Rejects with a `NotRunError` if the program cannot be built. */
  static async start(options: JudgeOptions): Promise<PorcupineJudge> {
    const { path } = await goProgram(fileURLToPath(new URL("go/", import.meta.url)), "porcupine");
    return new PorcupineJudge(path, options);
  }

  private constructor(program: string, { timeoutSeconds, pictures }: JudgeOptions) {
    const flags = [
      "-timeout",
      `${timeoutSeconds}s`,
      ...(pictures === undefined ? [] : ["-pictures", pictures]),
    ];
    this.#child = spawn(program, flags);
    this.#said = new Said(this.#child);
  }

  /** `run` names the pictures. */
  async check(run: string, operations: readonly Operation[]): Promise<ObjectVerdict[]> {
    this.#child.stdin.write(linesOf(run, operations));
    const verdicts: ObjectVerdict[] = [];
    for (;;) {
      const answer = JSON.parse(await this.#said.next()) as ObjectVerdict | { readonly checked: string };
      if ("checked" in answer) return verdicts;
      verdicts.push(answer);
    }
  }

  end(): void {
    this.#child.stdin.end();
  }
}
