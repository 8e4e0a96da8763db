import { spawn, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { SearchView } from "../protocol.js";
import type { Progress } from "./search.js";

const PROGRAM = fileURLToPath(new URL("search.ts", import.meta.url));

/** Searches for the seed that notices a broken rule, in a process of its own: the page stays responsive. */
export class Finder {
  view: SearchView | undefined;
  #child: ChildProcess | undefined;

  constructor(private readonly changed: (view: SearchView) => void) {}

  start(mutant: string, most: number): void {
    this.stop();
    const args = ["--import", import.meta.resolve("tsx"), PROGRAM, mutant, String(most)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    this.#child = child;
    this.#publish({ mutant, most, tried: 0, over: false });
    child.on("message", (progress: Progress) => {
      if (this.#child !== child) return;
      this.#publish({ mutant, most, ...progress, over: progress.seed !== undefined });
    });
    child.on("exit", () => {
      if (this.#child !== child) return;
      this.#child = undefined;
      if (this.view !== undefined && !this.view.over) this.#publish({ ...this.view, over: true });
    });
  }

  stop(): void {
    this.#child?.kill();
    this.#child = undefined;
    if (this.view !== undefined && !this.view.over) this.#publish({ ...this.view, over: true });
  }

  #publish(view: SearchView): void {
    this.view = view;
    this.changed(view);
  }
}
