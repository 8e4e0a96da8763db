import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { Mutant, Patch } from "./mutant.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const DIST = path.join(ROOT, "dist");
/** Inside the project, so that it finds the packages that it depends on. */
const HOME = path.join(ROOT, "node_modules", ".leasehold-mutants");

/** Source maps, types and bundles: two thirds of the files of the build. A mutant loads only the modules. */
const OTHER_FILES = /\.(?:map|d\.ts|d\.cts)$|^leasehold/;

/** A copy of the modules of the build with the mutant's patches. Throws if one does not apply. */
export function buildMutant({ name, patches }: Pick<Mutant, "name" | "patches">): string {
  const folder = path.join(HOME, name);
  rmSync(folder, { recursive: true, force: true });
  cpSync(DIST, folder, { recursive: true, filter: (file) => !OTHER_FILES.test(path.relative(DIST, file)) });
  for (const patch of patches) {
    const file = path.join(folder, patch.file);
    writeFileSync(file, patched(readFileSync(file, "utf8"), patch, name));
  }
  return folder;
}

export function patched(text: string, { file, from, to }: Patch, mutant: string): string {
  const parts = text.split(from);
  if (parts.length === 2) return parts.join(to);
  const found = parts.length === 1 ? "is not there" : `is there ${parts.length - 1} times`;
  throw new Error(`mutant ${mutant}: the text to replace in ${file} ${found}:\n${from}`);
}
