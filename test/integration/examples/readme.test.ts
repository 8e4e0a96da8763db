// The code in README.md, docs/fencing.md and docs/observability.md, run as programs against a real etcd, as users have them who copy them into
// a project with only the packages that the page names. Code in other languages is quoted from examples/.
import { readdirSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { leasesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import { blocksIn, programOf, readPage, sectionsOf, type Section } from "../../support/fixtures/pages.js";
import { UserProject } from "../../support/fixtures/user-project.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

/** The packages that each page says to install besides leasehold. */
const PAGES = [
  { page: "README.md", also: [] },
  { page: "docs/fencing.md", also: ["etcd3"] },
  { page: "docs/observability.md", also: ["@opentelemetry/api", "@opentelemetry/sdk-metrics"] },
];
/** Blocks in these languages are quotations; blocks without a language are commands. */
const QUOTED = ["js", "sql", "lua"];

const authority = makeAuthority("the authority");
let files: Awaited<ReturnType<typeof writeServerFiles>>;
let plain: EtcdCluster;
/** Uses TLS, and requires a client certificate and a password. */
let secure: UserEtcd;

beforeAll(async () => {
  buildPackage();
  files = await writeServerFiles(authority, authority.issue("etcd"));
  const clientTls = { ...files, clientCertAuth: true };
  [plain, secure] = await Promise.all([startEtcd(), startWithUsers({ clientTls })]);
}, 150_000);
afterAll(async () => {
  await Promise.all([plain?.stop(), secure?.stop(), files?.remove()]);
});

const fileOf = ({ title }: Section) => title.toLowerCase().replace(/\W+/g, "-");
const onHosts = (section: Section) =>
  programOf(section, (section.code.includes("https:") ? secure : plain).endpoints);

function projectWith(also: readonly string[]): UserProject {
  const project = new UserProject(also);
  const { certificate, key } = authority.issue("a client");
  project.write("ca.pem", authority.certificate);
  project.write("client.pem", certificate);
  project.write("client-key.pem", key);
  return project;
}

describe.each(PAGES)("the programs in $page", { timeout: 60_000 }, ({ page, also }) => {
  const sections = sectionsOf(page);
  let project: UserProject;
  let objections: string[];

  beforeAll(() => {
    project = projectWith(also);
    const programs = sections.map((section) => [fileOf(section), onHosts(section)] as const);
    objections = project.compile(new Map(programs));
  }, 60_000);
  afterAll(() => project?.[Symbol.dispose]());

  test("compile in strict TypeScript, with nothing installed but what the page says", () => {
    expect(objections).toEqual([]);
  });

  test.each(sections.map((section) => [section.title, section] as const))(
    "end well and leave no lease behind: %s",
    async (_, section) => {
      const leases = await leasesOf(plain.member);

      const { code, stderr } = await project.run(fileOf(section), { ETCD_PASSWORD: WORKER.password });

      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect([...(await leasesOf(plain.member))].filter((lease) => !leases.has(lease))).toEqual([]);
    },
  );
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
  const blocks = PAGES.flatMap(({ page }) => blocksIn(readPage(page)));

  test("is quoted from the examples, line by line", () => {
    const quoted = blocks.filter(({ language }) => QUOTED.includes(language));

    expect(quoted.length).toBeGreaterThan(0);
    expect(quoted.filter(({ code }) => !programs.some((program) => program.includes(lines(code))))).toEqual(
      [],
    );
  });

  test("is in no language that nothing checks", () => {
    const languages = new Set(blocks.map(({ language }) => language));

    expect([...languages].filter((language) => !["", "ts", ...QUOTED].includes(language))).toEqual([]);
  });
});
