// Which test files need a real etcd: those whose imports reach the search for one, and a few that get one in another way.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const SEARCH = path.join(ROOT, "test/support/etcd/etcd-find.js");
/** By `leasehold/testing`, or by a program that they start. */
const OTHERS = ["test/slow/testing/faults.test.ts", "test/meta/project/etcd-cli.test.ts"];

/** @returns {string[]} their paths in the repository */
export function filesThatNeedEtcd() {
  /** @type {Map<string, string[]>} */
  const imports = new Map();
  return readdirSync(path.join(ROOT, "test"), { recursive: true, encoding: "utf8" })
    .map((file) => path.posix.join("test", file.replaceAll(path.sep, "/")))
    .filter((file) => file.endsWith(".test.ts"))
    .filter((file) => OTHERS.includes(file) || reaches(path.join(ROOT, file), SEARCH, imports))
    .sort();
}

/**
 * @param {string} from
 * @param {string} to
 * @param {Map<string, string[]>} imports of the files that were read
 */
function reaches(from, to, imports) {
  const seen = new Set([from]);
  for (const file of seen) {
    if (file === to) return true;
    const found = imports.get(file) ?? importsOf(file);
    imports.set(file, found);
    for (const each of found) seen.add(each);
  }
  return false;
}

/** The files of the repository that a file imports, in any way. @param {string} file */
function importsOf(file) {
  const names = readFileSync(file, "utf8").matchAll(/(?:\bfrom|\bimport)[\s(]*"(\.[^"]+)"/g);
  return [...names].flatMap(([, name = ""]) => {
    const target = path.resolve(path.dirname(file), name);
    return [target.replace(/\.js$/, ".ts"), target].filter((each) => existsSync(each)).slice(0, 1);
  });
}
