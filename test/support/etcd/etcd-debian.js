// etcd from Debian's (or Ubuntu's) packages, without root and without installing anything: apt-get on private list and
// cache folders, dpkg-deb to unpack.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";

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
  const files = ["usr/bin/etcd", "usr/bin/etcdctl"];
  await fetchDebianFiles({ packages: ["etcd-server", "etcd-client"], files, into, env, version });
}

/**
 * Copies some files out of packages that are not installed.
 * @param {{ packages: string[], files: string[], into: string, env: NodeJS.ProcessEnv, version?: string | undefined }} what
 *   `*` in a file's path stands for one folder that has the rest, such as that of the architecture
 */
export async function fetchDebianFiles({ packages, files, into, env, version }) {
  const work = await mkdtemp(path.join(os.tmpdir(), "leasehold-apt-"));
  try {
    const apt = await privateApt(work, env);
    await apt(["update"]);
    if (version !== undefined) await useRelease(work, apt, debianReleaseOf(version), version);
    await apt(["download", ...packages]);
    await unpack(work, { files, into, env });
  } catch (error) {
    throw new Error(`Debian packages by apt-get: ${explain(error)}`, { cause: error });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/**
 * Unpacks a package, with those that it needs and this machine does not have, into a folder.
 * @param {{ name: string, into: string, env: NodeJS.ProcessEnv }} what
 */
export async function fetchDebianTree({ name, into, env }) {
  const work = await mkdtemp(path.join(os.tmpdir(), "leasehold-apt-"));
  try {
    const apt = await privateApt(work, env);
    await apt(["update"]);
    const plan = await apt(["install", "--simulate", "-y", "--no-install-recommends", name]);
    const packages = [...plan.matchAll(/^Inst (\S+)/gm)].map(([, found = ""]) => found);
    await apt(["download", ...packages]);
    const files = (await readdir(work)).filter((file) => file.endsWith(".deb"));
    for (const file of files)
      await run("dpkg-deb", ["-x", path.join(work, file), into], { env, timeout: 120_000 });
  } catch (error) {
    throw new Error(`Debian packages by apt-get: ${explain(error)}`, { cause: error });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
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

/** @param {string} work @param {{ files: string[], into: string, env: NodeJS.ProcessEnv }} what */
async function unpack(work, { files, into, env }) {
  const packages = (await readdir(work)).filter((file) => file.endsWith(".deb"));
  const tree = path.join(work, "tree");
  for (const file of packages)
    await run("dpkg-deb", ["-x", path.join(work, file), tree], { env, timeout: 60_000 });
  for (const file of files) {
    const [before = "", after] = file.split("*/");
    const all = after === undefined ? [""] : await readdir(path.join(tree, before));
    const folders = all.filter((folder) => existsSync(path.join(tree, before, folder, after ?? "")));
    if (folders.length === 0) throw new Error(`the packages have no ${file}`);
    for (const folder of folders)
      await copyFile(path.join(tree, before, folder, after ?? ""), path.join(into, path.basename(file)));
  }
}

/** @param {unknown} error */
function explain(error) {
  const { code, message, stderr } = /** @type {NodeJS.ErrnoException & { stderr?: string }} */ (error);
  if (code === "ENOENT") return "there is no apt-get here";
  const told = (stderr ?? "").split("\n").find((line) => line.startsWith("E:"));
  return told ?? message.split("\n")[0] ?? "failed";
}
