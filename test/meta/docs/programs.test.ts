// Every block of code in README.md and docs/, and the right programs of mistakes.md. Those in TypeScript are compiled and run as
// programs against a real etcd, as users have them who copy them into a project with only the packages that the page names. Code in
// other languages is quoted from examples/, or is not run, for the reason that the lists below give.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import {
  blocksIn,
  fileOf,
  isProgram,
  MISTAKES,
  PAGES,
  partsOf,
  programOf,
  readPage,
  sectionsOf,
} from "../../support/fixtures/pages.js";
import {
  compileTogether,
  type Objection,
  type Ran,
  UserProject,
} from "../../support/fixtures/user-project.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

/** The packages that a page says to install besides leasehold. */
const ALSO: Readonly<Record<string, readonly string[]>> = {
  "docs/fencing.md": ["etcd3"],
  "docs/observability.md": ["@opentelemetry/api", "@opentelemetry/sdk-metrics"],
  "docs/migrating.md": ["etcd3", "ioredis", "redlock", "redis-semaphore"],
  "docs/once.md": ["croner"],
  "docs/troubleshooting.md": ["node-cron"],
};
/** Blocks in these languages are quoted from examples/, line by line. */
const QUOTED = ["js", "sql", "lua"];
/** Its programs are run by test/slow/testing/faults.test.ts. */
const RUN_ELSEWHERE = "docs/testing-your-code.md";
/** Why blocks of the other languages are not run here. Blocks without a language are commands. */
const NOT_CODE: Readonly<Record<string, string>> = {
  text: "a picture or a message, which the tests of its subject compare",
  json: "output, which tests of the CLI compare with its types",
  sh: "commands: operations.test.ts runs those of docs/operations.md, tests of the CLI those of docs/cli.md",
  nginx: "test/proxies runs these settings",
  haproxy: "test/proxies runs these settings",
  javascript: "code of the browser, to compare with",
  go: "code of another client, to compare with",
};
/** The first word behind `ts` in a fence, for a block that this file does not run as a program. */
const MARKS: Readonly<Record<string, string>> = {
  compile: "is compiled, but not run",
};
const RUNNER = fileURLToPath(new URL("../../support/fixtures/run-in-turn.js", import.meta.url));
/** redlock does not export its types in a way that TypeScript finds. */
const REDLOCK = readFileSync(
  new URL("../../lab/rivals/subjects/redlock-types.d.ts", import.meta.url),
  "utf8",
);
const AT_ONCE = 2;
const LANES = Array.from({ length: AT_ONCE }, (_, n) => n);

const authority = makeAuthority("the authority");
let files: Awaited<ReturnType<typeof writeServerFiles>>;
/** One for each page that runs at a time: the leases that a program leaves are counted. */
let plain: EtcdCluster[];
/** Uses TLS, and requires a client certificate and a password. */
let secure: UserEtcd;

const withPrograms = [...PAGES, MISTAKES]
  .map((page) => ({ page, sections: sectionsOf(page) }))
  .filter(({ sections }) => sections.length > 0);
/** Blocks marked `ts compile`: programs of their own. */
const compiledOnly = PAGES.flatMap((page) =>
  partsOf(page).flatMap(({ title, blocks }) =>
    blocks
      .filter(({ language, info }) => language === "ts" && info.startsWith("compile"))
      .map(({ info, code }, n) => ({ page, name: `${fileOf(title)}-compiled-${n}`, info, code, title })),
  ),
);
const pages = [...new Set([...withPrograms, ...compiledOnly].map(({ page }) => page))];
const projects = new Map<string, UserProject>();
let objections: Objection[];

const laneOf = (page: string) => pages.indexOf(page) % AT_ONCE;
const etcdFor = (page: string) => plain[laneOf(page)]!;

interface Outcome {
  readonly error?: string;
  /** How many it left. */
  readonly leases: number;
}
interface RanPage extends Ran {
  readonly outcomes: Readonly<Record<string, Outcome>>;
}
const ran = new Map<string, RanPage>();

function projectFor(page: string): UserProject {
  const also = ALSO[page] ?? [];
  const project = new UserProject(also);
  const { certificate, key } = authority.issue("a client");
  project.write("ca.pem", authority.certificate);
  project.write("client.pem", certificate);
  project.write("client-key.pem", key);
  if (also.includes("redlock")) project.write("redlock-types.d.ts", REDLOCK);
  return project;
}

function programsOf(page: string): Map<string, string> {
  const sections = withPrograms.find((each) => each.page === page)?.sections ?? [];
  const hosts = (code: string) => (code.includes("https:") ? secure : etcdFor(page)).endpoints;
  const types = (ALSO[page] ?? []).includes("redlock")
    ? `/// <reference path="./redlock-types.d.ts" />\n`
    : "";
  return new Map([
    ...sections.map((section) => [fileOf(section.title), programOf(section, hosts(section.code))] as const),
    ...compiledOnly
      .filter((block) => block.page === page)
      .map(({ name, code }) => [name, `${types}${programOf({ code }, hosts(code))}`] as const),
  ]);
}

async function runPage(page: string): Promise<void> {
  const project = projects.get(page)!;
  const names = withPrograms.find((each) => each.page === page)?.sections.map(({ title }) => fileOf(title));
  project.write("run-in-turn.js", readFileSync(RUNNER));
  const env = { ETCD_PASSWORD: WORKER.password, GATEWAY: etcdFor(page).member.endpoint };
  const outcome = await project.run("run-in-turn", env, names);
  const report = JSON.parse(
    readFileSync(path.join(project.folder, "report.json"), "utf8"),
  ) as RanPage["outcomes"];
  ran.set(page, { ...outcome, outcomes: report });
}

beforeAll(async () => {
  buildPackage();
  files = await writeServerFiles(authority, authority.issue("etcd"));
  const clientTls = { ...files, clientCertAuth: true };
  [plain, secure] = await Promise.all([
    Promise.all(LANES.map(() => startEtcd())),
    startWithUsers({ clientTls }),
  ]);
  for (const page of pages) projects.set(page, projectFor(page));
  objections = compileTogether(
    pages.map((page) => ({ project: projects.get(page)!, programs: programsOf(page) })),
  );
  const runLane = async (lane: number): Promise<void> => {
    for (const { page } of withPrograms) if (laneOf(page) === lane) await runPage(page);
  };
  await Promise.all(LANES.map(runLane));
}, 200_000);
afterAll(async () => {
  for (const project of projects.values()) project[Symbol.dispose]();
  await Promise.all([...(plain ?? []).map((etcd) => etcd.stop()), secure?.stop(), files?.remove()]);
});

test.each(pages)(
  "the code in %s compiles in strict TypeScript, with no package but those it names",
  (page) => {
    const folder = path.basename(projects.get(page)?.folder ?? "");

    expect(objections.filter((each) => path.basename(each.folder) === folder)).toEqual([]);
  },
);

test("no other file has an error", () => {
  const folders = [...projects.values()].map(({ folder }) => path.basename(folder));

  expect(objections.filter((each) => !folders.includes(path.basename(each.folder)))).toEqual([]);
});

describe.each(withPrograms)("the programs in $page", ({ page, sections }) => {
  test.each(sections.map(({ title }) => title))("end well and leave no lease behind: %s", (title) => {
    expect(ran.get(page)?.outcomes[fileOf(title)]).toEqual({ leases: 0 });
  });

  test("let the process end, and write nothing to standard error", () => {
    const { code, stderr } = ran.get(page)!;

    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  });

  test("have titles of their own, which are the names of their files", () => {
    const names = sections.map(({ title }) => fileOf(title));

    expect(names).toEqual([...new Set(names)]);
  });
});

describe("the other code in the pages", () => {
  const lines = (code: string) =>
    code
      .trim()
      .split("\n")
      .map((line) => line.trim())
      .join("\n");
  const programs = readdirSync(new URL("../../../examples/", import.meta.url))
    .filter((file) => file.endsWith(".js"))
    .map((file) => lines(readPage(`examples/${file}`)));
  const blocks = PAGES.flatMap((page) => blocksIn(readPage(page)).map((block) => ({ page, ...block })));

  test("is quoted from the examples, line by line", () => {
    const quoted = blocks.filter(({ page, language }) => QUOTED.includes(language) && page !== RUN_ELSEWHERE);

    expect(quoted.length).toBeGreaterThan(0);
    expect(quoted.filter(({ code }) => !programs.some((program) => program.includes(lines(code))))).toEqual(
      [],
    );
  });

  test("is in no language that nothing checks", () => {
    const known = ["", "ts", ...QUOTED, ...Object.keys(NOT_CODE)];

    expect(blocks.filter(({ language }) => !known.includes(language))).toEqual([]);
  });

  const marked = blocks.filter((block) => block.language === "ts" && !isProgram(block));

  // The report of this test is the list.
  test.each(marked.map(({ page, info, code }) => [page, info, code.split("\n")[0] ?? ""] as const))(
    "is not run, and says why: %s, %s, %s",
    (_, info) => {
      const [mark = "", ...reason] = info.split(/:? /);

      expect(Object.keys(MARKS)).toContain(mark);
      if (mark === "compile") expect(reason.length, "words of the reason").toBeGreaterThan(2);
    },
  );
});
