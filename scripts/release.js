// `npm run release`: packs the package, makes the links of its pages absolute, and publishes that; arguments after `--` go to
// `npm publish`, such as --dry-run. `npm publish` itself fails: npm's page shows README.md, whose links lead nowhere there.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** Where the repository is public, such as "https://github.com/OWNER/leasehold"; "" until the owner has said so. */
const REPOSITORY = "";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const RULE = "the https:// URL of the repository on GitHub, without .git and a / at its end";

/** @param {string} url @returns {string | undefined} why nothing can be published */
export function refusalOf(url) {
  if (/^https:\/\/[^\s/]+\/[^\s/]+\/[^\s/]+(?<!\.git)$/.test(url)) return undefined;
  return `Expected REPOSITORY in scripts/release.js to be ${RULE}, got ${JSON.stringify(url)}: the links of the published pages begin with it.`;
}

/**
 * @param {string} text a page in Markdown
 * @param {string} page its path in the repository
 * @param {{ repository: string, version: string }} place
 * @returns {string} with absolute links to the files of that version, and to the pictures in them
 */
export function withAbsoluteLinks(text, page, { repository, version }) {
  const parts = text.split(/(^```[^]*?^```$)/m);
  const link = /(!?)(\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)/g;
  return parts
    .map((part, n) => {
      // Every second part is a block of code.
      if (n % 2 === 1) return part;
      return part.replace(link, (whole, picture, name, target, anchor = "") => {
        if (/^[a-z]+:/.test(target)) return whole;
        const file = path.posix.join(path.posix.dirname(page), target);
        return `${picture}${name}(${repository}/${picture ? "raw" : "blob"}/v${version}/${file}${anchor})`;
      });
    })
    .join("");
}

/**
 * @param {string} folder an empty one
 * @param {string} repository
 * @param {readonly string[]} [flags] for `npm pack`
 * @returns {string} the folder of the package in it, as it is published
 */
export function stage(folder, repository, flags = []) {
  const pack = ["pack", "--silent", "--no-update-notifier", "--pack-destination", folder, ...flags];
  execFileSync("npm", pack, { cwd: ROOT, stdio: ["ignore", "ignore", "inherit"] });
  const [archive = ""] = readdirSync(folder);
  execFileSync("tar", ["-xzf", archive], { cwd: folder });
  const staged = path.join(folder, "package");
  const manifest = path.join(staged, "package.json");
  const own = JSON.parse(readFileSync(manifest, "utf8"));
  const place = {
    repository: { type: "git", url: `git+${repository}.git` },
    homepage: `${repository}#readme`,
    bugs: `${repository}/issues`,
  };
  writeFileSync(manifest, `${JSON.stringify({ ...own, ...place }, null, 2)}\n`);
  for (const page of pagesIn(staged)) {
    const file = path.join(staged, page);
    const text = readFileSync(file, "utf8");
    writeFileSync(file, withAbsoluteLinks(text, page, { repository, version: own.version }));
  }
  return staged;
}

/** @param {string} folder */
const pagesIn = (folder) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((file) => file.replaceAll(path.sep, "/"))
    .filter((file) => file.endsWith(".md"));

/** @param {readonly string[]} args */
function release(args) {
  const refusal = refusalOf(REPOSITORY);
  if (refusal !== undefined) fail(refusal);
  if (args.includes("--refuse")) fail("The links of the pages are made absolute first: npm run release");
  const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-release-"));
  try {
    const staged = stage(folder, REPOSITORY);
    execFileSync("npm", ["publish", staged, "--ignore-scripts", ...args], { stdio: "inherit" });
    const { version } = JSON.parse(readFileSync(path.join(staged, "package.json"), "utf8"));
    console.log(`The links lead to the tag v${version}: push it.`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @param {string} message @returns {never} */
function fail(message) {
  console.error(message);
  process.exit(1);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) release(process.argv.slice(2));
