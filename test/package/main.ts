// `npm run package:matrix [-- --quick] [-- --only REGEXP]`: packs leasehold, tries the tarball as users do, each in a clean folder, and prints one table.
import { existsSync } from "node:fs";
import { readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startEtcd } from "../support/etcd/etcd.js";
import { markdownTable } from "../support/fixtures/markdown.js";
import { cellsOf, type Cell } from "./cells.js";
import { Folder, NotRun, removeFolders } from "./shell.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** Installations wait for the network, compilers for a processor. */
const AT_ONCE = 3;

interface Row {
  readonly name: string;
  readonly version: string;
  readonly result: string;
  readonly seconds: number;
  readonly failure?: string;
}

async function rowOf({ name, run }: Cell): Promise<Row> {
  const start = performance.now();
  const row = (result: string, version = "", failure?: string): Row => {
    const seconds = (performance.now() - start) / 1000;
    console.log(`${result.split(":")[0]!.padEnd(8)} ${name}`);
    return { name, version, result, seconds, ...(failure !== undefined && { failure }) };
  };
  try {
    return row("works", (await run()).trim());
  } catch (error) {
    const { message } = error as Error;
    return error instanceof NotRun ? row(`not run: ${message}`) : row("FAILED", "", message);
  }
}

/** In order, a few at a time. */
async function rowsOf(cells: readonly Cell[]): Promise<Row[]> {
  const rows: Row[] = [];
  const open = [...cells.entries()];
  const work = async (): Promise<void> => {
    for (let next = open.shift(); next; next = open.shift()) rows[next[0]] = await rowOf(next[1]);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return rows;
}

const { quick, only } = parseArgs({
  options: { quick: { type: "boolean", default: false }, only: { type: "string", default: "" } },
}).values;
const folder = await Folder.create("tarball");
// Made by no source: npm pack builds anew, or the package would have it.
const stray = path.join(ROOT, "dist", "leasehold-stray.js");
await writeFile(stray, "changed by hand");
await folder.run("npm", ["pack", "--silent", "--pack-destination", folder.path, ROOT]);
if (existsSync(stray)) throw new Error("npm pack has packed the files of an earlier build");
const [archive = ""] = (await readdir(folder.path)).filter((file) => file.endsWith(".tgz"));
const etcd = await startEtcd();
try {
  const tarball = path.join(folder.path, archive);
  const hosts = etcd.endpoints[0]!;
  const cells = cellsOf({ tarball, hosts, quick }).filter(({ name }) => new RegExp(only, "i").test(name));
  // What measures runs alone.
  const alone = cells.filter(({ name }) => name.startsWith("size"));
  const rows = [...(await rowsOf(alone)), ...(await rowsOf(cells.filter((cell) => !alone.includes(cell))))];
  const table = rows.map(({ name, version, result, seconds }) => [name, version, result, seconds.toFixed(1)]);
  console.log(["", ...markdownTable([["cell", "version", "result", "seconds"], ...table])].join("\n"));
  const failed = rows.filter(({ failure }) => failure !== undefined);
  for (const { name, failure } of failed) console.error(`\nerror  ${name}:\n${failure!.slice(0, 4000)}`);
  process.exitCode = failed.length > 0 ? 1 : 0;
} finally {
  await etcd.stop();
  await removeFolders();
}
