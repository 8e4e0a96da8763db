// What the package costs: its size, its dependencies, and the time to import it.
import { readdir, stat } from "node:fs/promises";
import path from "node:path";
import type { Folder } from "./shell.js";

/** Bounds with room for growth; who raises one sees what it costs. */
const MOST = { packages: 1, installMb: 3.2, ownMb: 3.2, importRatio: 4 };
const ENTRIES = ["leasehold", "leasehold/diagnostics", "leasehold/ui"];
const ROUNDS = 7;
const MB = 1e6;

/** The time of a whole process that imports the entry, as a multiple of one that imports an empty module. */
async function importRatio(folder: Folder, entry: string): Promise<number> {
  const best = new Map<string, number>();
  for (let round = 0; round < ROUNDS; round++)
    for (const module of [entry, "./empty.mjs"]) {
      const start = performance.now();
      await folder.run(process.execPath, ["--input-type=module", "-e", `import ${JSON.stringify(module)}`]);
      best.set(module, Math.min(best.get(module) ?? Infinity, performance.now() - start));
    }
  return (best.get(entry) ?? Infinity) / (best.get("./empty.mjs") ?? 1);
}

/** The bytes of all files under a folder. */
export async function bytesIn(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const sizes = await Promise.all(files.map((file) => stat(path.join(file.parentPath, file.name))));
  return sizes.reduce((sum, { size }) => sum + size, 0);
}

/** @param folder in which only leasehold was installed @returns what to print @throws {Error} when a bound is exceeded. */
export async function weigh(folder: Folder): Promise<string> {
  const packages = path.join(folder.path, "node_modules");
  const lock = (await folder.run("npm", ["ls", "--all", "--parseable", "--silent"])).trim().split("\n");
  const found = {
    packages: lock.length - 1,
    installMb: (await bytesIn(packages)) / MB,
    ownMb: (await bytesIn(path.join(packages, "leasehold"))) / MB,
  };
  const ratios = new Map<string, number>();
  for (const entry of ENTRIES) ratios.set(entry, await importRatio(folder, entry));
  const most = { ...found, importRatio: Math.max(...ratios.values()) };
  const over = Object.entries(MOST).filter(([name, limit]) => most[name as keyof typeof MOST] > limit);
  const times = [...ratios].map(([entry, ratio]) => `${entry} ${ratio.toFixed(2)}`).join(", ");
  const text =
    `${found.packages} packages, ${found.installMb.toFixed(1)} MB, of which leasehold ${found.ownMb.toFixed(1)} MB; ` +
    `process time by that of an empty module: ${times}`;
  if (over.length > 0)
    throw new Error(`${text}; over the bounds: ${JSON.stringify(Object.fromEntries(over))}`);
  return text;
}
