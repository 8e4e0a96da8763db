// Programs from Debian's (or Ubuntu's) packages, without root and without installing anything: apt-get on private list and
// cache folders, dpkg-deb to unpack.
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { osRelease } from "../../../dist/testing/find.js";
import { inCache } from "./etcd-cache.js";

const run = promisify(execFile);

/** Debian releases by the etcd series that they carry. */
const RELEASES = new Map([
  ["3.4", "bookworm"],
  ["3.5", "trixie"],
]);

/** @param {string} version of etcd @returns {string | undefined} the release that carries it, if any is known */
export function debianReleaseOf(version) {
  return RELEASES.get(version.split(".").slice(0, 2).join("."));
}

/**
 * @param {string} into folder that gets `etcd` and `etcdctl`
 * @param {{ env: NodeJS.ProcessEnv, version?: string | undefined }} options
 */
export async function fetchDebianPackages(into, { env, version }) {
  await withApt(env, async (apt, work) => {
    if (version !== undefined) await useRelease(work, apt, debianReleaseOf(version), version);
    await unpack(["etcd-server", "etcd-client"], { apt, work, env, into: path.join(work, "tree") });
    for (const name of ["etcd", "etcdctl"])
      await copyFile(path.join(work, "tree/usr/bin", name), path.join(into, name));
  });
}

/**
 * The folder of the cache that has the files of a package, and of those that it needs and this machine does not have.
 * @param {string} name @param {NodeJS.ProcessEnv} env
 */
export function debianTree(name, env) {
  return inCache(`${name}-${osRelease().id}-${process.arch}`, env, (into) =>
    withApt(env, async (apt, work) => {
      // Where the package itself is installed but not on the PATH, its files are wanted all the same.
      const plan = await apt(["install", "--simulate", "--reinstall", "-y", "--no-install-recommends", name]);
      const packages = [...plan.matchAll(/^Inst (\S+)/gm)].map(([, found = ""]) => found);
      await unpack(packages, { apt, work, env, into });
    }),
  );
}

/** @param {NodeJS.ProcessEnv} env @param {(apt: Apt, work: string) => Promise<void>} use */
async function withApt(env, use) {
  const work = await mkdtemp(path.join(os.tmpdir(), "leasehold-apt-"));
  try {
    const apt = await privateApt(work, env);
    await apt(["update"]);
    await use(apt, work);
  } catch (error) {
    throw new Error(`Debian packages by apt-get: ${explain(error)}`, { cause: error });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/**
 * @param {readonly string[]} packages
 * @param {{ apt: Apt, work: string, env: NodeJS.ProcessEnv, into: string }} how
 */
async function unpack(packages, { apt, work, env, into }) {
  await apt(["download", ...packages]);
  const files = (await readdir(work)).filter((file) => file.endsWith(".deb"));
  for (const file of files)
    await run("dpkg-deb", ["-x", path.join(work, file), into], { env, timeout: 120_000 });
}

/** @typedef {(args: readonly string[]) => Promise<string>} Apt */

/**
 * @param {string} work @param {NodeJS.ProcessEnv} env
 * @returns {Promise<Apt>}
 */
async function privateApt(work, env) {
  await mkdir(path.join(work, "lists", "partial"), { recursive: true });
  await mkdir(path.join(work, "cache", "archives", "partial"), { recursive: true });
  const settings = {
    "Dir::State::lists": path.join(work, "lists"),
    "Dir::Cache": path.join(work, "cache"),
    // as root, apt would drop to its own user, who may not write here
    "APT::Sandbox::User": os.userInfo().username,
    "Acquire::Languages": "none",
    "Acquire::Retries": "2",
    "Acquire::http::Timeout": "20",
    "Acquire::https::Timeout": "20",
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  return async (args) => {
    // other sources of this machine may be unreachable: `download` reports whether the packages are available
    const extra = await sourceOptions(work);
    const { stdout } = await run("apt-get", [...options, ...extra, "-q", ...args], {
      cwd: work,
      env: { ...env, LC_ALL: "C" },
      timeout: 180_000,
      maxBuffer: 16 << 20,
    });
    return stdout;
  };
}

/** @param {string} work */
async function sourceOptions(work) {
  const files = await readdir(work);
  if (!files.includes("sources.list")) return [];
  return [
    "-o",
    `Dir::Etc::sourcelist=${path.join(work, "sources.list")}`,
    "-o",
    "Dir::Etc::sourceparts=/dev/null",
  ];
}

/**
 * Replaces the machine's sources by one line for another Debian release, made from the machine's own mirror and keyring.
 * @param {string} work @param {Apt} apt @param {string | undefined} release @param {string} version
 */
async function useRelease(work, apt, release, version) {
  if (release === undefined) throw new Error(`no Debian release is known to carry etcd ${version}`);
  const format = "$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(SOURCESENTRY)";
  const targets = await apt(["indextargets", "--format", format, "Created-By: Packages"]);
  const rows = targets.split("\n").map((line) => line.split("|"));
  const own = rows.find((row) => row[1] === "Debian" && row[2] === "Debian" && row[3] === "main");
  if (own === undefined)
    throw new Error("this machine has no Debian source to derive another release's from");
  const keyring = await keyringOf(own[4] ?? "");
  await writeFile(path.join(work, "sources.list"), `deb ${keyring}${own[0]} ${release} main\n`);
  await apt(["update"]);
}

// If a source names no keyring, apt uses its trusted default keyrings.
/** @param {string} entry a source's file and line, such as "/etc/apt/sources.list.d/debian.sources:1" */
async function keyringOf(entry) {
  const text = await readFile(entry.replace(/:\d+$/, ""), "utf8").catch(() => "");
  const file = /signed-by\s*[:=]\s*(\/[^\s\],]+)/i.exec(text)?.[1];
  return file ? `[signed-by=${file}] ` : "";
}

/** @param {unknown} error */
function explain(error) {
  const { code, message, stderr } = /** @type {NodeJS.ErrnoException & { stderr?: string }} */ (error);
  if (code === "ENOENT") return "there is no apt-get here";
  const told = (stderr ?? "").split("\n").find((line) => line.startsWith("E:"));
  return told ?? message.split("\n")[0] ?? "failed";
}
