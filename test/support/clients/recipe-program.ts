// A program that uses the barriers of Go's client.
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { goProgram } from "../programs/go-program.js";
import { owned } from "../programs/owned.js";
import { Said } from "../programs/said.js";

const FOLDER = fileURLToPath(new URL("./go-recipes/", import.meta.url));

/** Rejects with a `NotRunError` where it can't be built. */
export const recipeProgram = async (): Promise<string> => (await goProgram(FOLDER, "recipes")).path;

interface Told {
  readonly k: string;
  readonly id?: number;
  readonly err?: string;
}

export class RecipeProgram {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #said: Said;
  #ids = 0;

  static async start(
    program: string,
    task: { readonly addresses: readonly string[]; readonly ttlSeconds: number },
  ): Promise<RecipeProgram> {
    const started = new RecipeProgram(owned(spawn(program, [JSON.stringify(task)], { stdio: "pipe" })));
    await started.#said.first((text) => (JSON.parse(text) as Told).k === "ready");
    return started;
  }

  private constructor(child: ChildProcessByStdio<Writable, Readable, Readable>) {
    this.#child = child;
    this.#said = new Said(child);
    child.stdin.on("error", () => {});
  }

  /** Resolves when the call in Go has returned; rejects with the text of its error. `member`: of a double barrier. */
  async call(
    what: "enter" | "leave" | "hold" | "release" | "wait",
    name: string,
    member: { readonly member?: number; readonly members?: number } = {},
  ): Promise<void> {
    const id = ++this.#ids;
    this.#child.stdin.write(`${JSON.stringify({ do: what, id, name, ...member })}\n`);
    const told = JSON.parse(await this.#said.first((text) => (JSON.parse(text) as Told).id === id)) as Told;
    if (told.err) throw new Error(told.err);
  }

  /** kill -9 */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }
}
