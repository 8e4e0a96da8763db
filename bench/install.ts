// `npm run bench:install [-- --write]`: what `npm install` brings, of leasehold and of the other locks on npm: packages, bytes,
// install scripts, seconds. Each is installed in an empty folder with an empty cache; leasehold comes from its own tarball. With
// --write, the table goes into docs/operations.md.
import { readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { bytesIn } from "../test/package/weights.js";
import { Folder, removeFolders } from "../test/package/shell.js";
import { startEtcd } from "../test/support/etcd/etcd.js";
import { between, markdownTable } from "../test/support/fixtures/markdown.js";
import { version } from "./peers/peers.js";
import { median } from "./report/statistics.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const PAGE = path.join(ROOT, "docs/operations.md");
const ROUNDS = 3;

/** What a user of each lock installs: the Redis locks need a client. */
const OTHERS: Readonly<Record<string, readonly string[]>> = {
  etcd3: ["etcd3"],
  "redlock, ioredis": ["redlock", "ioredis"],
  "redis-semaphore, ioredis": ["redis-semaphore", "ioredis"],
};

const FIRST_LOCK = `
import { connect, Mutex } from "leasehold";
const cluster = connect({ hosts: process.env.HOSTS });
await new Mutex(cluster, "bench/install").withLock((lock) => console.log(lock.fence));
await cluster.close();
`;

interface Cost {
  readonly packages: number;
  readonly mb: number;
  readonly scripts: number;
  readonly installSeconds: number;
  /** From the start of the installation until the program with the first lock has ended. */
  readonly lockSeconds?: number;
}

const seconds = (start: number): number => (performance.now() - start) / 1000;

async function install(name: string, packages: readonly string[], hosts?: string): Promise<Cost> {
  const folder = await Folder.create(name, { "first-lock.mjs": FIRST_LOCK });
  const cache = { npm_config_cache: path.join(folder.path, ".cache") };
  const start = performance.now();
  await folder.run("npm", ["install", "--no-audit", "--no-fund", "--silent", ...packages], cache);
  const installSeconds = seconds(start);
  if (hosts !== undefined) await folder.run(process.execPath, ["first-lock.mjs"], { HOSTS: hosts });
  const lockSeconds = hosts === undefined ? {} : { lockSeconds: seconds(start) };
  const modules = path.join(folder.path, "node_modules");
  const lock = JSON.parse(await readFile(path.join(modules, ".package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, { readonly hasInstallScript?: boolean }>>;
  };
  const entries = Object.values(lock.packages);
  const scripts = entries.filter(({ hasInstallScript }) => hasInstallScript).length;
  return {
    packages: entries.length,
    mb: (await bytesIn(modules)) / 1e6,
    scripts,
    installSeconds,
    ...lockSeconds,
  };
}

/** The figures of the median round: the rest is the same in each. */
async function measure(name: string, packages: readonly string[], hosts?: string): Promise<string[]> {
  const rounds: Cost[] = [];
  for (let n = 0; n < ROUNDS; n++) rounds.push(await install(`${name} ${n}`, packages, hosts));
  const { packages: count, mb, scripts } = rounds[0]!;
  const times = (of: (cost: Cost) => number | undefined): string => {
    const all = rounds.map(of).filter((each) => each !== undefined);
    return all.length === 0 ? "–" : median(all).toFixed(1);
  };
  return [
    ...[name, String(count), mb.toFixed(1), String(scripts)],
    ...[times((cost) => cost.installSeconds), times((cost) => cost.lockSeconds)],
  ];
}

const { write } = parseArgs({ options: { write: { type: "boolean", default: false } } }).values;
const packed = await Folder.create("tarball");
await packed.run("npm", ["pack", "--silent", "--pack-destination", packed.path, ROOT]);
const [archive = ""] = (await readdir(packed.path)).filter((file) => file.endsWith(".tgz"));
const etcd = await startEtcd();
try {
  const tarball = path.join(packed.path, archive);
  const hosts = etcd.endpoints[0]!;
  const rows = [await measure("leasehold", [tarball], hosts)];
  for (const [name, packages] of Object.entries(OTHERS)) {
    const exact = packages.map((each) => `${each}@${version(each)}`);
    rows.push(await measure(name, exact));
  }
  const titles = ["installed", "packages", "MB", "install scripts", "install, s", "to the first lock, s"];
  const table = markdownTable([titles, ...rows]);
  console.log(table.join("\n"));
  if (write) await writeFile(PAGE, between(await readFile(PAGE, "utf8"), "install", table));
} finally {
  await etcd.stop();
  await removeFolders();
}
