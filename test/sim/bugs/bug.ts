import type { Patch } from "../../lab/mutants/mutant.js";
import type { Ground } from "./hunt.js";

/** A bug that was in this repository once, put back into today's build. */
export interface Bug {
  readonly name: string;
  /** The commit that mended it. */
  readonly mended: { readonly commit: string; readonly title: string };
  /** What a user lost by it. */
  readonly lost: string;
  /** What is replaced in files of the build, as in a mutant of the lab. */
  readonly patches: readonly Patch[];
  readonly ground: Ground;
}
