// @ts-check
import { parseArgs } from "node:util";

export const HELP = `npm run demo -- [options]

Worker processes contend for one lock and count in etcd, while the holder is killed, another holder
is frozen beyond its lease, and etcd's leader is killed. A separate process judges what happened.

  --workers N        contending processes, 5 to 26 (default 5)
  --seed N           order and moments of the faults, lengths of the work (default: random, printed)
  --sabotage fence   the workers skip the fence: the verdict must find it, exit code 1
  --endpoints URLS   use this etcd (http://host:port, separated by commas) instead of starting one:
                     under a random prefix that is removed at the end, no fault at the servers
  --dev              use the etcd of "leasehold dev", as where no other is found
  --ui               serve the live page of the queue on 127.0.0.1 meanwhile, and print its address
  --help             this text

Exit code: 0 all promises kept, 1 a promise broken, 64 bad options, 69 no etcd, 130 interrupted.
`;

/** An error on the command line: printed as one line, with exit code 64. */
export class UsageError extends RangeError {}

/**
 * @typedef {object} DemoOptions
 * @property {number} workers
 * @property {number} seed
 * @property {boolean} sabotage
 * @property {boolean} ui
 * @property {string[]} endpoints empty = start a separate etcd
 */
/** What was given for the flags. @typedef {Readonly<Record<string, string | boolean | undefined>>} Given */

/**
 * @param {Given} given
 * @returns {DemoOptions}
 */
export function optionsOf({ workers = "5", seed, sabotage, ui, endpoints }) {
  return {
    workers: wholeNumber("--workers", workers, 5, 26),
    seed:
      seed === undefined ? Math.floor(Math.random() * 100_000) : wholeNumber("--seed", seed, 0, 2 ** 32 - 1),
    sabotage: sabotageOf(sabotage),
    ui: ui === true,
    endpoints: endpointsOf(endpoints),
  };
}

/** @param {string[]} args */
export function parse(args) {
  try {
    const { values } = parseArgs({
      args,
      strict: true,
      allowPositionals: false,
      options: {
        workers: { type: "string" },
        seed: { type: "string" },
        sabotage: { type: "string" },
        endpoints: { type: "string" },
        dev: { type: "boolean" },
        ui: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    });
    return values;
  } catch (error) {
    throw new UsageError(/** @type {Error} */ (error).message.split(/\. |\.?\n/)[0]);
  }
}

/**
 * @param {string} flag
 * @param {Given[string]} given
 * @param {number} low
 * @param {number} high
 */
function wholeNumber(flag, given, low, high) {
  const text = String(given);
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= low && value <= high) return value;
  throw new UsageError(`Expected ${flag} to be a whole number from ${low} to ${high}, got '${text}'`);
}

/** @param {Given[string]} text */
function sabotageOf(text) {
  if (text === undefined || text === "fence") return text === "fence";
  throw new UsageError(`Expected --sabotage to be 'fence', got '${text}'`);
}

/** @param {Given[string]} text */
function endpointsOf(text) {
  if (text === undefined) return [];
  const urls = String(text).split(",").map(urlOf);
  const wrong = urls.find((url) => !isEndpoint(url));
  if (wrong === undefined) return urls.map((url) => new URL(url).origin);
  throw new UsageError(`Expected --endpoints to be URLs like http://127.0.0.1:2379, got '${wrong}'`);
}

/** etcdctl's endpoints need no scheme. @param {string} text */
const urlOf = (text) => (text.includes("://") ? text.trim() : `http://${text.trim()}`);

/** @param {string} text */
function isEndpoint(text) {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url !== undefined && /^https?:$/.test(url.protocol) && url.pathname === "/" && !url.search;
}
