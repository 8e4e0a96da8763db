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
  --ui               serve the live page of the queue on 127.0.0.1 meanwhile, and print its address
  --help             this text

Exit code: 0 all promises kept, 1 a promise broken, 64 bad options, 69 no etcd, 130 interrupted.
`;

/** An error on the command line: printed as one line, with exit code 64. */
export class UsageError extends Error {}

/**
 * @typedef {object} DemoOptions
 * @property {number} workers
 * @property {number} seed
 * @property {boolean} sabotage
 * @property {boolean} ui
 * @property {string[]} endpoints empty = start a separate etcd
 */

/**
 * @param {string[]} args
 * @returns {DemoOptions | "help"}
 */
export function parseOptions(args) {
  const given = parse(args);
  if (given.help) return "help";
  return {
    workers: given.workers === undefined ? 5 : wholeNumber("--workers", given.workers, 5, 26),
    seed:
      given.seed === undefined
        ? Math.floor(Math.random() * 100_000)
        : wholeNumber("--seed", given.seed, 0, 2 ** 32 - 1),
    sabotage: sabotageOf(given.sabotage),
    ui: given.ui === true,
    endpoints: endpointsOf(given.endpoints),
  };
}

/** @param {string[]} args */
function parse(args) {
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
 * @param {string} text
 * @param {number} low
 * @param {number} high
 */
function wholeNumber(flag, text, low, high) {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= low && value <= high) return value;
  throw new UsageError(`Expected ${flag} to be a whole number from ${low} to ${high}, got '${text}'`);
}

/** @param {string | undefined} text */
function sabotageOf(text) {
  if (text === undefined || text === "fence") return text === "fence";
  throw new UsageError(`Expected --sabotage to be 'fence', got '${text}'`);
}

/** @param {string | undefined} text */
function endpointsOf(text) {
  if (text === undefined) return [];
  const urls = text.split(",").map((url) => url.trim());
  const wrong = urls.find((url) => !isEndpoint(url));
  if (wrong === undefined) return urls.map((url) => new URL(url).origin);
  throw new UsageError(`Expected --endpoints to be URLs like http://127.0.0.1:2379, got '${wrong}'`);
}

/** @param {string} text */
function isEndpoint(text) {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url !== undefined && /^https?:$/.test(url.protocol) && url.pathname === "/" && !url.search;
}
