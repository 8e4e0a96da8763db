// @ts-check
// `npm run demo`: processes contend for one lock, faults hit them, and a verdict is printed.
import { EtcdMissingError } from "../../test/support/etcd/etcd.js";
import { HELP, parseOptions, UsageError } from "./options.js";
import { NoEtcdError, play } from "./play.js";

const EXIT = { ok: 0, broken: 1, usage: 64, noEtcd: 69, interrupted: 130 };

/**
 * @param {string[]} args
 * @returns {Promise<number>} the exit code
 */
async function main(args) {
  const options = parseOptions(args);
  if (options === "help") {
    process.stdout.write(HELP);
    return EXIT.ok;
  }
  const interrupt = new AbortController();
  for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) {
    process.on(name, () => interrupt.abort(new Interrupted()));
  }
  return (await play(options, interrupt.signal)) ? EXIT.ok : EXIT.broken;
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
