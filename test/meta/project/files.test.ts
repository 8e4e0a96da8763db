// The files that every public repository has, and the link targets of this one's pages.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { refusalOf, stage } from "../../../scripts/release.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const NOT_OURS = /^(\.git|node_modules|dist.*|docs-out|coverage)$/;
const FILES = [
  ...[".editorconfig", ".gitattributes", ".nvmrc"],
  ...["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"],
];

interface Package {
  readonly license: string;
  readonly version: string;
  readonly engines: { readonly node: string };
  readonly scripts: Readonly<Record<string, string>>;
}

const read = (file: string) => readFileSync(path.join(ROOT, file), "utf8");
const own = JSON.parse(read("package.json")) as Package;

const pagesOf = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".md"))
    .map((file) => file.replaceAll(path.sep, "/"));
const pagesIn = (folder: string) =>
  pagesOf(path.join(ROOT, folder)).map((file) => path.posix.join(folder, file));
const pages = readdirSync(ROOT, { withFileTypes: true })
  .filter(({ name }) => !NOT_OURS.test(name))
  .flatMap((entry) => (entry.isDirectory() ? pagesIn(entry.name) : entry.name))
  .filter((file) => file.endsWith(".md"));

const targetsIn = (text: string) => [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = ""]) => target);

/** The links of a page within the repository, relative to its root, without the part after "#". */
const linksOf = (page: string) =>
  targetsIn(read(page))
    .filter((target) => !/^([a-z]+:|#)/.test(target))
    .map((target) => path.posix.join(path.posix.dirname(page), target.replace(/#.*/, "")));

/** The links of a page to a heading, of itself or of another page: [page, anchor]. */
const anchorsOf = (page: string) =>
  [...textOf(page).matchAll(/\]\(([^)\s#]*)#([^)\s]+)\)/g)]
    .filter(([, target = ""]) => !/^[a-z]+:/.test(target) && (target === "" || target.endsWith(".md")))
    .map(([, target = "", anchor = ""]) => ({
      page: target === "" ? page : path.posix.join(path.posix.dirname(page), target),
      anchor,
    }));

/** A page without its blocks of code, which contain no headings and no links. */
const textOf = (page: string) => read(page).replace(/^```[^]*?^```$/gm, "");

/** The anchors of a page's headings, as GitHub makes them: https://github.com/gjtorikian/html-pipeline, TableOfContentsFilter. */
function headingsOf(page: string): Set<string> {
  const seen = new Map<string, number>();
  const titles = [...textOf(page).matchAll(/^#+ (.*)$/gm)].map(([, title = ""]) => title);
  return new Set(
    titles.map((title) => {
      const plain = title.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase();
      const slug = plain.replace(/[^\p{L}\p{N}\p{M}_ -]/gu, "").replaceAll(" ", "-");
      const times = seen.get(slug) ?? 0;
      seen.set(slug, times + 1);
      return times === 0 ? slug : `${slug}-${times}`;
    }),
  );
}

/**
 * The paths that a page names as code, such as `test/lab`. Those of cases.md are relative to test/, and have a separate
 * test.
 */
const pathsIn = (page: string) =>
  [...read(page).matchAll(/`((?:bench|docker|docs|examples|scripts|src|test|\.ci)\/[\w./-]*)`/g)].map(
    ([, file = ""]) => file,
  );

const isMissing = (file: string) => !existsSync(path.join(ROOT, file));

/** Any. */
const REPOSITORY = "https://github.com/owner/leasehold";

describe("the repository", () => {
  it("has the files that users and contributors look for", () => {
    expect(FILES.filter(isMissing)).toEqual([]);
  });

  it("has one license, in LICENSE and in package.json", () => {
    const [title, , copyright] = read("LICENSE").split("\n");

    expect(title).toBe(`${own.license} License`);
    expect(copyright).toBe("Copyright (c) 2026 the leasehold authors");
  });

  it("names the oldest Node.js in .nvmrc and in package.json", () => {
    expect(own.engines.node).toContain(`>=${read(".nvmrc").trim()}.`);
  });

  it("has a script `check` with each part of CI that is one npm script", () => {
    const parts = [...read(".ci/run").matchAll(/^ *(?:part|compute) .* npm run --silent (\S+)$/gm)].map(
      ([, name]) => name,
    );
    const checks = own.scripts["check"]?.split(" && ") ?? [];

    expect(parts.length).toBeGreaterThan(3);
    expect(parts.filter((part) => !checks.includes(`npm run ${part}`))).toEqual([]);
    expect(checks).toContain("npm run test:unit");
  });
});

describe("the pages of the repository", () => {
  it.each(pages)("%s links to files that exist", (page) => {
    expect(linksOf(page).filter(isMissing)).toEqual([]);
  });

  it.each(pages)("%s links to headings that exist", (page) => {
    const missing = anchorsOf(page).filter(
      (link) => isMissing(link.page) || !headingsOf(link.page).has(link.anchor),
    );

    expect(missing).toEqual([]);
  });

  it.each(pages)("%s names paths that exist", (page) => {
    expect(pathsIn(page).filter(isMissing)).toEqual([]);
  });

  it("of docs/ are all in the list of guides and references, docs/README.md", () => {
    const listed = linksOf("docs/README.md");
    const guides = pages.filter((page) => /^docs\/[^/]+\.md$/.test(page) && page !== "docs/README.md");

    expect(guides.filter((page) => !listed.includes(page))).toEqual([]);
  });

  it("are published with links to the repository, to files and headings that exist there", () => {
    const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-staged-"));
    try {
      const staged = stage(folder, REPOSITORY, ["--ignore-scripts"]);
      const published = pagesOf(staged);
      const links = published.flatMap((page) =>
        targetsIn(readFileSync(path.join(staged, page), "utf8")).map((target) => ({ page, target })),
      );
      const relative = links.filter(({ target }) => !/^(https?:\/\/|#)/.test(target));
      const begin = new RegExp(`^${REPOSITORY}/(blob|raw)/v${own.version}/`);
      const files = links.filter(({ target }) => begin.test(target));
      const lost = files.filter(({ target }) => isMissing(target.replace(begin, "").replace(/#.*/, "")));

      // The examples are not in the package, so their names alone lead nowhere.
      const unlinked = published.flatMap((page) =>
        [
          ...textOf(page)
            .replace(/\[[^\]]*\]\([^)]*\)/g, "")
            .matchAll(/`examples\/[^`]*`/g),
        ].map(([name]) => [page, name]),
      );

      expect(published).toEqual(expect.arrayContaining(["README.md", "docs/api.md", "SECURITY.md"]));
      expect({ relative, lost, unlinked }).toEqual({ relative: [], lost: [], unlinked: [] });
      expect(files.length).toBeGreaterThan(100);
      const manifest = JSON.parse(readFileSync(path.join(staged, "package.json"), "utf8")) as unknown;
      expect(manifest).toMatchObject({ repository: { type: "git", url: `git+${REPOSITORY}.git` } });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }, 60_000);

  it("are not published by npm publish, nor while it is unknown where the repository is", () => {
    const publish = ["publish", "--dry-run", "--no-update-notifier"];
    const { status, stderr } = spawnSync("npm", publish, { cwd: ROOT, encoding: "utf8" });

    expect(status).not.toBe(0);
    expect(stderr).toMatch(/Expected REPOSITORY in scripts\/release\.js|npm run release/);
    expect(["", "http://a/b/c", "https://a/b", `${REPOSITORY}.git`, `${REPOSITORY}/`].map(refusalOf)).toEqual(
      Array(5).fill(
        expect.stringContaining("Expected REPOSITORY in scripts/release.js to be the https:// URL"),
      ),
    );
    expect(refusalOf(REPOSITORY)).toBeUndefined();
  }, 60_000);
});
