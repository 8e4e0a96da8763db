// @ts-check
// The sequence: etcd, workers and observer start, the nemesis injects faults, all processes end, the judge reports.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { EtcdClient } from "./client.js";
import { Crew } from "./crew.js";
import { openHistory, writeRun } from "./history.js";
import { CAN_FREEZE, injectFaults, planFaults } from "./nemesis.js";
import { seeded } from "./random.js";
import { Stage } from "./stage.js";
import { servePage } from "./page.js";
import { wantsColour } from "./paint.js";
import { Timeline } from "./timeline.js";

export { startDev } from "./dev.js";
export { optionsOf } from "./options.js";

/** @typedef {import("./options.js").DemoOptions} DemoOptions */
/**
 * @typedef {object} Performance
 * @property {DemoOptions} options
 * @property {() => Promise<import("./nemesis.js").EtcdCluster>} start starts an etcd, unless `options` has endpoints
 * @property {import("./timeline.js").Screen & NodeJS.WritableStream} screen
 * @property {boolean} [json] only the verdict, one line of JSON for each promise
 * @property {AbortSignal} interrupt
 */

/**
 * Short, so that a dead holder does not block the queue for long; longer than etcd needs to elect a leader, so that
 * sessions survive that.
 */
const TTL_SECONDS = 3;
/** In any case, the verdict comes within a minute. */
const FAULTS_END_MS = 42_000;
const GATHER_MS = 10_000;

/** The endpoints that the user gave do not answer. */
export class NoEtcdError extends Error {}

/**
 * @param {Performance} performance
 * @returns {Promise<boolean>} whether every promise was kept
 */
export async function play(performance) {
  const { options, start, screen, interrupt } = performance;
  if (options.endpoints.length > 0) await reach(options.endpoints);
  const folder = mkdtempSync(join(tmpdir(), "leasehold-demo-"));
  const prefix = `leasehold-demo-${randomBytes(6).toString("hex")}`;
  /** @type {import("./nemesis.js").EtcdCluster | undefined} */
  let etcd;
  let keep = false;
  try {
    if (options.endpoints.length === 0) etcd = await start();
    interrupt.throwIfAborted();
    const endpoints = etcd?.endpoints ?? options.endpoints;
    await perform({ ...performance, etcd, endpoints, prefix, folder });
    const kept = await verdict(folder, performance);
    keep = !kept && !performance.json;
    return kept;
  } finally {
    if (etcd) await etcd.stop();
    else if (options.endpoints.length > 0) await clean(options.endpoints, `${prefix}/`);
    if (keep) screen.write(`  The recorded history is in ${folder}\n\n`);
    else rmSync(folder, { recursive: true, force: true });
  }
}

/** @param {string[]} endpoints */
async function reach(endpoints) {
  const client = new EtcdClient(endpoints);
  try {
    await client.revision({ forMs: 5000 });
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    throw new NoEtcdError(`No etcd answers at ${endpoints.join(", ")}: ${message}`);
  } finally {
    client.close();
  }
}

/** @param {string[]} endpoints @param {string} prefix */
async function clean(endpoints, prefix) {
  const client = new EtcdClient(endpoints);
  await client.deletePrefix(prefix).catch(() => {});
  client.close();
}

/**
 * @typedef {object} Place
 * @property {import("./nemesis.js").EtcdCluster | undefined} etcd undefined: that of the user
 * @property {string[]} endpoints
 * @property {string} prefix
 * @property {string} folder
 */
/** @typedef {Performance & Place} Setting */

/** @param {Setting} setting */
async function perform(setting) {
  const { options, etcd, folder, interrupt } = setting;
  const signal = AbortSignal.any([interrupt, AbortSignal.timeout(FAULTS_END_MS)]);
  const random = seeded(options.seed);
  const faults = planFaults(random, etcd !== undefined);
  const run = runOf(setting, faults);
  writeRun(folder, run);

  const stage = new Stage(signal);
  const crew = new Crew(stage);
  const timeline = new Timeline(setting.json ? { write: () => {} } : setting.screen);
  stage.listen((event) => timeline.show(event));
  introduce(timeline, setting);
  const page = options.ui ? await servePage(setting.endpoints, `${setting.prefix}/`) : undefined;
  if (page) timeline.say(`  The queue, live: ${page.url}\n`);
  try {
    await gather({ crew, stage, timeline, setting, run });
    const record = openHistory(folder, "nemesis");
    await injectFaults(faults, { stage, crew, etcd, random, record, signal }).catch((error) => {
      if (interrupt.aborted) throw interrupt.reason;
      timeline.say(`  The faults ended early: ${error.message}`);
    });
    await crew.end(run.workers);
    await crew.end(["observer"]);
  } finally {
    timeline.close();
    await crew.killAll();
    await page?.close();
  }
}

/**
 * @param {Setting} setting
 * @param {string[]} faults
 * @returns {import("./history.js").Run}
 */
function runOf({ options, prefix }, faults) {
  const workers = Array.from({ length: options.workers }, (_, index) => String.fromCharCode(65 + index));
  const names = { lock: `${prefix}/lock`, counter: `${prefix}/counter` };
  return { ...names, ttlMs: TTL_SECONDS * 1000, workers, sabotage: options.sabotage, faults };
}

/**
 * Starts the observer first, because nothing may happen before it watches; then the workers, until all of them are in
 * the queue.
 * @param {{ crew: Crew, stage: Stage, timeline: Timeline, setting: Setting, run: import("./history.js").Run }} scene
 */
async function gather({ crew, stage, timeline, setting, run }) {
  const { endpoints, prefix, folder, options } = setting;
  const shared = { endpoints, prefix, folder, lock: run.lock, counter: run.counter };
  await observe(crew, stage, shared);
  timeline.open();
  for (const name of run.workers) {
    const own = { name, seed: options.seed + name.charCodeAt(0), ttlSeconds: TTL_SECONDS };
    crew.start(name, "worker.js", { ...shared, ...own, sabotage: options.sabotage });
  }
  const all = run.workers.length;
  await stage.until(({ k, places }) => k === "queue" && places.length === all, GATHER_MS);
}

/**
 * @param {Crew} crew
 * @param {Stage} stage
 * @param {object} job
 */
async function observe(crew, stage, job) {
  const observing = stage.until(
    ({ k, p }) => k === "observing" || (k === "exit" && p === "observer"),
    GATHER_MS,
  );
  crew.start("observer", "observer.js", job);
  if ((await observing)?.k !== "observing") throw new NoEtcdError("The observer cannot watch etcd");
}

/**
 * @param {Timeline} timeline
 * @param {Setting} setting
 */
function introduce(timeline, { options: { workers, seed, sabotage }, etcd, endpoints, prefix }) {
  timeline.say(`
  leasehold: ${workers} processes, one lock, ${etcd?.what ?? "your etcd"}, leases of ${TTL_SECONDS} s  (--seed ${seed})

  Who holds the lock reads a counter in etcd, works a moment and writes it back plus one.
  Meanwhile a holder is killed, another is frozen beyond its lease${etcd ? ", and etcd's leader dies" : ""}.
`);
  if (etcd) timeline.say(`  ${etcd.why}\n`);
  else {
    timeline.say(
      `  Yours: ${endpoints.join(", ")}\n  It is left alone; our keys are below ${prefix}/ and removed at the end.\n`,
    );
  }
  if (!CAN_FREEZE) timeline.say("  Windows cannot freeze a process: that act is left out.\n");
  if (sabotage)
    timeline.say("  SABOTAGE: the workers write without the fence. The verdict has to find out.\n");
}

/**
 * @param {string} folder
 * @param {Performance} performance
 * @returns {Promise<boolean>}
 */
async function verdict(folder, { screen, json }) {
  const file = fileURLToPath(new URL("judge.js", import.meta.url));
  const form = json ? "json" : wantsColour(screen) ? "color" : "plain";
  const judge = spawn(process.execPath, [file, folder, form], { stdio: ["ignore", "pipe", "inherit"] });
  judge.stdout.pipe(screen, { end: false });
  const [code] = await once(judge, "close");
  return code === 0;
}
