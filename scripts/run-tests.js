// `npm test [-- FILTER …]`: unit and integration tests against a separate etcd. `npm run test:all [-- FILTER …]`: all tests.
// `npm run test:all -- GROUP`: a group of groups.js, such as "browser".
// Arguments are passed to vitest: `npm test -- mutex`, `npm test -- -t "aborts"`; a filter searches all tests. In CI, files that
// failed beside others run again alone. Without an etcd, it runs the files that need none, and says which it did not run; in CI that
// is an error, because nobody would read it.
import { EtcdMissingError, exitWhenMissing, findEtcd } from "../test/support/etcd/etcd.js";
import { filesThatNeedEtcd } from "./needs-etcd.js";
import { runVitest } from "./vitest-run.js";

/** The projects of vitest.config.ts, and the folders of test/ that they run. */
const SHORT = { projects: ["unit", "integration", "alone"], folders: ["unit", "integration", "interop"] };
const LONG = { projects: ["slow", "meta", "slow-alone"], folders: ["slow", "meta", "package"] };

const group = await groupIn(process.argv.slice(2));
const missing = group ? undefined : await findEtcd().then(announce, withoutEtcd);
process.exitCode = await (group ?? suite)();

/** @param {import("../test/support/etcd/etcd-find.js").Etcd} etcd */
function announce({ version, etcd }) {
  console.log(`Testing with etcd ${version} (${etcd}) on Node ${process.versions.node}.`);
  return undefined;
}

/** @param {unknown} error */
function withoutEtcd(error) {
  // Who asks for an etcd wants to test with it.
  const { CI, LEASEHOLD_ETCD, LEASEHOLD_ETCD_VERSION } = process.env;
  if (!(error instanceof EtcdMissingError) || CI || LEASEHOLD_ETCD || LEASEHOLD_ETCD_VERSION)
    exitWhenMissing(error);
  console.log(`Testing without etcd on Node ${process.versions.node}.`);
  return error;
}

/**
 * One line for each of these folders that has files which were left out, and how to get an etcd.
 * @param {EtcdMissingError} error
 * @param {readonly string[]} folders
 */
function explainNotRun(error, folders) {
  console.log("");
  const notRun = filesThatNeedEtcd();
  for (const folder of folders) {
    const count = notRun.filter((file) => file.startsWith(`test/${folder}/`)).length;
    if (count > 0)
      console.log(`not run: ${count} file${count === 1 ? "" : "s"} of test/${folder}: they need a real etcd`);
  }
  console.log(`\n${error.message}`);
}

/** @returns {Promise<number>} the exit code */
async function suite() {
  const { projects, folders, next, args } = chosen(process.argv.slice(2));
  const flags = projects.map((name) => `--project=${name}`);
  const code = await runVitest([...flags, ...args], { env: missing && { LEASEHOLD_WITHOUT_ETCD: "1" } });
  if (missing) explainNotRun(missing, folders);
  if (code === 0 && next) console.log(`Next: ${next}`);
  return code;
}

/**
 * @param {readonly string[]} words
 * @returns {{ projects: readonly string[], folders: readonly string[], args: readonly string[], next?: string }}
 */
function chosen(words) {
  const args = words.filter((word) => word !== "--all" && word !== "--rest");
  const folders = [...SHORT.folders, ...LONG.folders];
  if (words.includes("--all")) return { projects: [...SHORT.projects, ...LONG.projects], folders, args };
  if (words.includes("--rest")) return { ...LONG, args };
  if (args.some(choosesTests)) return { projects: [], folders, args };
  return {
    ...SHORT,
    args,
    next: "npm run test:all, which also runs the slow tests and those of the repository",
  };
}

/** Whether the word is a filter, or an option that chooses tests: these search everywhere. @param {string} word */
function choosesTests(word, /** @type {number} */ index, /** @type {readonly string[]} */ words) {
  if (/^(-t|--testNamePattern|--changed|--project)\b/.test(word)) return true;
  const before = words[index - 1] ?? "";
  // The value of an option, as in `--maxWorkers 1`.
  return !word.startsWith("-") && !(before.startsWith("--") && !before.includes("="));
}

/** The group that the words name, with its options. @param {readonly string[]} words */
async function groupIn([first, name = "", ...args]) {
  if (first !== "--all") return undefined;
  const { GROUPS } = await import("./groups.js");
  const group = GROUPS[name];
  return group && (() => group(args));
}
