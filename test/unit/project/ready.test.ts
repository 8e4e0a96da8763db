// The two commands of a fresh clone: what runs before `npm ci` can use no package.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const SCRIPTS = new URL("../../../scripts/", import.meta.url);
const STATIC_IMPORT = /^(?:import|export)\b[^;]*?\bfrom "([^"]+)"|^import "([^"]+)"/gm;

/** The modules that `file` and the files that it loads at once import, by the importing file. */
function importsOf(file: URL, seen = new Map<string, string[]>()): Map<string, string[]> {
  const path = fileURLToPath(file);
  if (seen.has(path)) return seen;
  const names = [...readFileSync(file, "utf8").matchAll(STATIC_IMPORT)].map(
    ([, from, bare]) => (from ?? bare)!,
  );
  seen.set(path, names);
  for (const name of names) if (name.startsWith(".")) importsOf(new URL(name, file), seen);
  return seen;
}

it.each(["ready.js", "build.js"])("scripts/%s loads no package before it has installed them", (script) => {
  const packages = [...importsOf(new URL(script, SCRIPTS))].flatMap(([file, names]) =>
    names.filter((name) => !/^(?:\.|node:)/.test(name)).map((name) => `${file}: ${name}`),
  );

  expect(packages).toEqual([]);
});
