// The mistakes in docs/troubleshooting.md. Each wrong line is one of a program that is run against a real etcd and prints what
// mistakes.md says; each right line is one of a program that programs.test.ts runs.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import path from "node:path";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import { fileOf, isProgram, MISTAKES, type Part, partsOf, programOf } from "../../support/fixtures/pages.js";
import { compileTogether, type Objection, UserProject } from "../../support/fixtures/user-project.js";

const PAGE = "docs/troubleshooting.md";
const AT_ONCE = 3;

const sections = partsOf(MISTAKES).filter(({ blocks }) =>
  blocks.some(({ info }) => info.startsWith("wrong")),
);
const blocksOf = (section: Part, mark: RegExp) =>
  section.blocks.filter(({ language, info }) => language === "ts" && mark.test(info));
const quotedIn = (section: Part) =>
  section.blocks.filter(({ language }) => language === "text").flatMap(({ code }) => code.trim().split("\n"));

let etcd: EtcdCluster;
let project: UserProject;
let objections: Objection[];
/** What the wrong program of a section printed, by its title. */
const printed = new Map<string, string>();

const programsOf = (section: Part): [name: string, code: string][] =>
  blocksOf(section, /^wrong/).map(({ code, info }) => [
    fileOf(section.title),
    programOf({ code, open: info.endsWith("open") }, etcd.endpoints),
  ]);

async function runSection({ title }: Part): Promise<void> {
  const { stdout, stderr } = await project.run(fileOf(title));
  printed.set(title, `${stdout}\n${stderr}`);
}

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
  project = new UserProject();
  objections = compileTogether([{ project, programs: new Map(sections.flatMap(programsOf)) }]);
  const waiting = [...sections];
  const runNext = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await runSection(next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, runNext));
}, 200_000);
afterAll(async () => {
  project?.[Symbol.dispose]();
  await etcd?.stop();
});

/** "…" stands for any text within a line. */
const lineLike = (quoted: string) =>
  new RegExp(
    quoted
      .split("…")
      .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
      .join(".*"),
  );

const oneLine = (code: string) => code.replace(/\s+/g, " ");

/** The wrong code and the right code of each item of the page. */
const rows = (() => {
  const titles = partsOf(PAGE).map(({ title }) => title);
  const parts = partsOf(PAGE).slice(titles.indexOf("Mistakes") + 1, titles.indexOf("Questions"));
  const items = parts.flatMap(({ text }) => [...text.matchAll(/^- ([^]*?)\s→\s([^]*?`)\.\s/gm)]);
  return items.map(([, wrong = "", right = ""]) => ({ wrong: codeIn(wrong), right: codeIn(right) }));
})();

function codeIn(text: string): string[] {
  return [...text.matchAll(/(`+)([^]+?)\1/g)].map(([, , code = ""]) => oneLine(code));
}

const has = (blocks: Part["blocks"], quoted: readonly string[]) =>
  quoted.length > 0 &&
  quoted.every((each) => lineLike(each).test(oneLine(blocks.map(({ code }) => code).join("\n"))));

test("each mistake of the page is quoted from one section's programs, and each section is one", () => {
  const quoted = rows.map(({ wrong, right }) =>
    sections
      .filter(
        (section) => has(blocksOf(section, /^wrong/), wrong) && has(section.blocks.filter(isProgram), right),
      )
      .map(({ title }) => title),
  );

  expect(rows.filter((_, n) => quoted[n]?.length !== 1)).toEqual([]);
  expect(quoted.flat().sort()).toEqual(sections.map(({ title }) => title).sort());
});

test("the wrong code compiles: what the compiler finds is marked in it", () => {
  const inProject = (each: Objection) => path.basename(each.folder) === path.basename(project.folder);

  expect(objections.filter(inProject)).toEqual([]);
});

describe.each(sections.map((section) => [section.title, section] as const))(
  "mistake: %s",
  (title, section) => {
    test("has wrong code, what happens, and right code", () => {
      expect(blocksOf(section, /^wrong/)).toHaveLength(1);
      expect(quotedIn(section)).not.toEqual([]);
      expect(section.blocks.filter(isProgram)).toHaveLength(1);
    });

    test("does what the page says, when it is made", () => {
      const lines = (printed.get(title) ?? "").split("\n");
      const missing = quotedIn(section).filter(
        (quoted) => !lines.some((line) => lineLike(quoted).test(line)),
      );

      expect({ missing, printed: missing.length > 0 ? lines : [] }).toEqual({ missing: [], printed: [] });
    });
  },
);
