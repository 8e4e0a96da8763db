// @ts-check
// `npm run demo`: processes contend for one lock, faults hit them, and a verdict is printed. `leasehold demo` plays the same, on the
// etcd of the package.
import { EtcdMissingError, findEtcd, startEtcd } from "../../test/support/etcd/etcd.js";
import { startDev } from "./dev.js";
import { HELP, optionsOf, parse, UsageError } from "./options.js";
import { NoEtcdError, play } from "./play.js";

const EXIT = { ok: 0, broken: 1, usage: 64, noEtcd: 69, interrupted: 130 };

/**
 * @param {string[]} args
 * @returns {Promise<number>} the exit code
 */
async function main(args) {
  const given = parse(args);
  if (given.help) {
    process.stdout.write(HELP);
    return EXIT.ok;
  }
  const options = optionsOf(given);
  const interrupt = new AbortController();
  for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) {
    process.on(name, () => interrupt.abort(new Interrupted()));
  }
  const start = given.dev ? () => startDev() : startAny;
  const kept = await play({ options, start, screen: process.stdout, interrupt: interrupt.signal });
  return kept ? EXIT.ok : EXIT.broken;
}

/** An installed etcd, that of the cache, or of Debian's packages, or else the one that needs nothing. */
async function startAny() {
  const told = setTimeout(() => console.log("  Looking for an etcd: Debian's packages ..."), 1000);
  try {
    return await startReal();
  } catch (error) {
    const { LEASEHOLD_ETCD, LEASEHOLD_ETCD_VERSION } = process.env;
    // Who asks for one is not given another.
    if (!(error instanceof EtcdMissingError) || LEASEHOLD_ETCD || LEASEHOLD_ETCD_VERSION) throw error;
    return await startDev(`No etcd was found: ${error.reason}.`);
  } finally {
    clearTimeout(told);
  }
}

/** @returns {Promise<import("./nemesis.js").EtcdCluster>} */
async function startReal() {
  const { etcd } = await findEtcd();
  const cluster = await startEtcd({ members: 3 });
  return {
    what: `3 members of etcd ${cluster.version}`,
    why: `etcd: ${etcd}`,
    endpoints: cluster.endpoints,
    leader: () => cluster.leader(),
    stop: () => cluster.stop(),
  };
}

class Interrupted extends Error {}

/**
 * @param {unknown} error
 * @returns {number}
 */
function explain(error) {
  if (error instanceof Interrupted) {
    console.error("\n  Interrupted: every process of the demo was ended.");
    return EXIT.interrupted;
  }
  if (error instanceof UsageError) {
    console.error(`${error.message}\nTry: npm run demo -- --help`);
    return EXIT.usage;
  }
  if (error instanceof EtcdMissingError || error instanceof NoEtcdError) {
    console.error(error.message);
    return EXIT.noEtcd;
  }
  console.error(error);
  return EXIT.broken;
}

process.exitCode = await main(process.argv.slice(2)).catch(explain);
