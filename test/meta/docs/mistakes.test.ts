// docs/mistakes.md: the wrong code of each section is run as a program against a real etcd, and prints what the section says.
// programs.test.ts runs the right code.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import path from "node:path";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import {
  fileOf,
  isProgram,
  PAGES,
  type Part,
  partsOf,
  programOf,
  readPage,
} from "../../support/fixtures/pages.js";
import { compileTogether, type Objection, UserProject } from "../../support/fixtures/user-project.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const PAGE = "docs/mistakes.md";
const MISTAKES = 20;
const AT_ONCE = 3;

const sections = partsOf(PAGE).filter(({ blocks }) => blocks.some(({ info }) => info.startsWith("wrong")));
const blocksOf = (section: Part, mark: RegExp) =>
  section.blocks.filter(({ language, info }) => language === "ts" && mark.test(info));
const quotedIn = (section: Part) =>
  section.blocks.filter(({ language }) => language === "text").flatMap(({ code }) => code.trim().split("\n"));
const searchedFor = (section: Part) => /<!-- search: (.*) -->/.exec(section.text)?.[1];

const authority = makeAuthority("the authority");
let files: Awaited<ReturnType<typeof writeServerFiles>>;
let plain: EtcdCluster;
let secure: UserEtcd;
let project: UserProject;
let objections: Objection[];
/** What the programs of a section printed, by its title. */
const printed = new Map<string, string>();

/** The programs of a section, in order. */
const namesOf = (section: Part) =>
  blocksOf(section, /^(wrong|then)/).map((_, n) => `${fileOf(section.title)}-${n}`);

function programsOf(section: Part): [name: string, code: string][] {
  const names = namesOf(section);
  return blocksOf(section, /^(wrong|then)/).map(({ code, info }, n) => {
    const { endpoints } = code.includes("https:") ? secure : plain;
    return [names[n] ?? "", programOf({ code, open: info.endsWith("open") }, endpoints)];
  });
}

async function runSection(section: Part): Promise<void> {
  const texts: string[] = [];
  for (const name of namesOf(section)) {
    const { stdout, stderr } = await project.run(name, { ETCD_PASSWORD: WORKER.password });
    texts.push(stdout, stderr);
  }
  printed.set(section.title, texts.join("\n"));
}

beforeAll(async () => {
  buildPackage();
  files = await writeServerFiles(authority, authority.issue("etcd"));
  [plain, secure] = await Promise.all([
    startEtcd(),
    startWithUsers({ clientTls: { ...files, clientCertAuth: true } }),
  ]);
  project = new UserProject();
  const { certificate, key } = authority.issue("a client");
  project.write("ca.pem", authority.certificate);
  project.write("another-ca.pem", makeAuthority("another authority").certificate);
  project.write("client.pem", certificate);
  project.write("client-key.pem", key);
  objections = compileTogether([{ project, programs: new Map(sections.flatMap(programsOf)) }]);
  const waiting = [...sections];
  const runNext = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await runSection(next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, runNext));
}, 200_000);
afterAll(async () => {
  project?.[Symbol.dispose]();
  await Promise.all([plain?.stop(), secure?.stop(), files?.remove()]);
});

const wordsOf = (text: string) => new Set(text.toLowerCase().match(/[\p{L}\d]+/gu) ?? []);
const everySection = PAGES.flatMap(partsOf).map(({ title, text }) => ({
  title,
  words: wordsOf(text.replace(/<!--.*-->/g, "")),
}));

const meanLength = everySection.reduce((sum, { words }) => sum + words.size, 0) / everySection.length;

/** A plain full-text search (BM25, each word counted once): rare words count more, and long sections less. */
function search(text: string): { readonly title: string; readonly score: number }[] {
  const weights = [...wordsOf(text)].map((word) => {
    const hits = everySection.filter(({ words }) => words.has(word)).length;
    return [word, Math.log((everySection.length + 1) / (hits + 1))] as const;
  });
  return everySection
    .map(({ title, words }) => {
      const sum = weights.reduce((sum, [word, weight]) => sum + (words.has(word) ? weight : 0), 0);
      return { title, score: sum / (1 + 1.2 * (0.25 + (0.75 * words.size) / meanLength)) };
    })
    .sort((a, b) => b.score - a.score);
}

/** "…" stands for any text within a line. */
const lineLike = (quoted: string) =>
  new RegExp(
    quoted
      .split("…")
      .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
      .join(".*"),
  );

test("the page has at least 20 mistakes, and README.md links to it", () => {
  expect(readPage("README.md").includes("(docs/mistakes.md)")).toBe(true);
  expect(sections.length).toBeGreaterThanOrEqual(MISTAKES);
});

test("the wrong code compiles: what the compiler finds is marked in it", () => {
  const inProject = (each: Objection) => path.basename(each.folder) === path.basename(project.folder);

  expect(objections.filter(inProject)).toEqual([]);
});

describe.each(sections.map((section) => [section.title, section] as const))(
  "mistake: %s",
  (title, section) => {
    test("has wrong code, what happens, right code, and the words of a search", () => {
      expect(blocksOf(section, /^wrong/)).toHaveLength(1);
      expect(quotedIn(section)).not.toEqual([]);
      expect(section.blocks.filter(isProgram)).toHaveLength(1);
      expect(searchedFor(section)).toBeDefined();
    });

    test("does what the page says, when it is made", () => {
      const lines = (printed.get(title) ?? "").split("\n");
      const missing = quotedIn(section).filter(
        (quoted) => !lines.some((line) => lineLike(quoted).test(line)),
      );

      expect({ missing, printed: missing.length > 0 ? lines : [] }).toEqual({ missing: [], printed: [] });
    });

    test("is found by the words of a search in all documents", () => {
      const best = search(searchedFor(section) ?? "").slice(0, 3);

      expect(best.map((hit) => hit.title)).toContain(title);
    });
  },
);
