import path from "node:path";
import { pathToFileURL } from "node:url";

type Leasehold = typeof import("../../../src/index.js");

/**
 * The built package, as a user's program imports it, or another build of it such as a mutant. The import specifier is a
 * variable, so that the types come from the sources and type checking needs no build.
 */
export function load(build: string | undefined): Promise<Leasehold> {
  const name = build === undefined ? "leasehold" : pathToFileURL(path.join(build, "index.js")).href;
  return import(name) as Promise<Leasehold>;
}
