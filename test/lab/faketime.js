// Moves the wall clock of a real process with libfaketime, one hour forward and two hours back, while it holds a lock:
// nothing may be lost. Uses an installed libfaketime, or else unpacks Debian's package without installing it; prints
// "not run: <reason>" if neither is available. Needs the built package.
import { existsSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { EXIT_NOT_RUN } from "../../scripts/exit-not-run.js";
import { exitWhenMissing, startEtcd } from "../support/etcd/etcd.js";
import { debianTree } from "../support/etcd/etcd-debian.js";
import { observe } from "../support/clients/observer.js";
import { Crew } from "../support/programs/workers.js";

const TTL_SECONDS = 3;
const HOUR_MS = 3_600_000;

/** Installed, or in Debian's package: below /usr/lib/<architecture>/faketime. */
async function findLibrary() {
  if (process.env.LEASEHOLD_FAKETIME) return process.env.LEASEHOLD_FAKETIME;
  return libraryBelow("/") ?? libraryBelow(await debianTree("libfaketime", process.env));
}

/** @param {string} root */
function libraryBelow(root) {
  const parent = path.join(root, "usr/lib");
  const folders = existsSync(parent) ? readdirSync(parent) : [];
  const files = folders.map((folder) => path.join(parent, folder, "faketime/libfaketime.so.1"));
  return files.find(existsSync);
}

/** @param {string} library @param {string} offsetFile */
async function run(library, offsetFile) {
  const etcd = await startEtcd();
  const crew = new Crew();
  try {
    return await holdThroughJumps(etcd, crew, library, offsetFile);
  } finally {
    await crew[Symbol.asyncDispose]();
    await etcd.stop();
  }
}

/**
 * @param {import("../support/etcd/etcd.js").EtcdCluster} etcd @param {Crew} crew @param {string} library
 * @param {string} offsetFile @returns {Promise<string | undefined>} what went wrong
 */
async function holdThroughJumps(etcd, crew, library, offsetFile) {
  const server = await observe(etcd.member.endpoint, "clock/");
  const env = {
    LD_PRELOAD: library,
    FAKETIME_TIMESTAMP_FILE: offsetFile,
    FAKETIME_NO_CACHE: "1",
    FAKETIME_DONT_FAKE_MONOTONIC: "1",
  };
  const worker = await crew.start("worker", { env });
  await worker.connect({ hosts: etcd.member.endpoint });
  await worker.session("session", { ttlSeconds: TTL_SECONDS });
  await worker.lock("clock", { as: "lock", source: "session" });

  for (const hours of [1, -1]) {
    writeFileSync(offsetFile, `${hours > 0 ? "+" : ""}${hours * 3600}`);
    const moved = (await worker.wallClock()) - Date.now();
    if (Math.abs(moved - hours * HOUR_MS) > HOUR_MS / 60) return `the wall clock moved by ${moved} ms only`;
    await delay(2.2 * TTL_SECONDS * 1000);
    const { held, aborted } = await worker.read("lock");
    if (!held || aborted) return `the lock was lost when the clock jumped to ${hours} h`;
  }
  server[Symbol.dispose]();
  if (server.seen.some((event) => event.type === "DELETE")) return "etcd deleted the key";
  if (worker.states("session").some((change) => change.state === "lost")) return "the session was lost";
  return undefined;
}

const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-faketime-"));
try {
  const offsetFile = path.join(folder, "offset");
  writeFileSync(offsetFile, "+0");
  const library = await findLibrary().catch((/** @type {Error} */ { message }) => {
    console.log(`not run: libfaketime is neither installed nor to be had (${message})`);
    process.exitCode = EXIT_NOT_RUN;
  });
  if (library !== undefined) {
    const failure = await run(library, offsetFile).catch(exitWhenMissing);
    const passed = "passed: a wall clock that jumps an hour forth and back loses nothing";
    console.log(failure ? `failed: ${failure}` : passed);
    process.exitCode = failure ? 1 : 0;
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
