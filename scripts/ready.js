// `node scripts/ready.js SCRIPT [ARGS]`: prepares a fresh clone (installs packages, builds the library), then runs the
// script in the same process, so that exit code and signals are the script's own. Depends only on Node.js.
import { createHash } from "node:crypto";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "./build.js";
import { lock } from "../test/support/etcd/etcd-cache.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const LOCK_FILE = path.join(ROOT, "package-lock.json");
/** Holds the hash of the lock file that was installed. */
const STAMP = path.join(ROOT, "node_modules", ".leasehold-installed");

const unlock = await lock(readyLock());
try {
  if (!isInstalled()) await install();
  await build();
} finally {
  await unlock();
}
const [script, ...args] = process.argv.slice(2);
if (script !== undefined) await runHere(path.resolve(script), args);

// Not in the clone: `npm ci` removes node_modules, and no other ignored folder belongs to this script alone.
function readyLock() {
  const clone = createHash("sha256").update(ROOT).digest("hex").slice(0, 16);
  return path.join(os.tmpdir(), `leasehold-ready-${os.userInfo().username}-${clone}.lock`);
}

function lockFileHash() {
  return createHash("sha256").update(readFileSync(LOCK_FILE)).digest("hex");
}

function isInstalled() {
  const stamp = statSync(STAMP, { throwIfNoEntry: false }) && readFileSync(STAMP, "utf8");
  if (stamp === lockFileHash()) return true;
  // npm writes this file last: it is newer if a user has run `npm ci`
  const byHand = statSync(path.join(ROOT, "node_modules", ".package-lock.json"), { throwIfNoEntry: false });
  return byHand !== undefined && byHand.mtimeMs >= statSync(LOCK_FILE).mtimeMs;
}

async function install() {
  console.error("Installing packages (npm ci) ...");
  const npm = process.env["npm_execpath"];
  const [program, first] = npm?.endsWith(".js") ? [process.execPath, [npm]] : ["npm", []];
  // its output goes to standard error: the script's own output stays clean
  const child = spawn(program, [...first, "ci", "--no-audit", "--no-fund"], {
    cwd: ROOT,
    stdio: ["ignore", 2, 2],
    shell: process.platform === "win32" && program === "npm",
  });
  const [code] = await once(child, "exit");
  if (code !== 0) {
    console.error(`npm ci ended with ${code}: see above. It needs the npm registry or a filled npm cache.`);
    process.exit(1);
  }
  writeFileSync(STAMP, lockFileHash());
}

/** @param {string} file @param {readonly string[]} args */
async function runHere(file, args) {
  process.argv.splice(1, process.argv.length, file, ...args);
  await import(pathToFileURL(file).href);
}
