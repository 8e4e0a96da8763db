// docs/cli.md and docs/cli-json.md against the program that they describe.
import { describe, expect, test } from "vitest";
import { CONNECTION_FLAGS } from "../../../../src/tools/cli/arguments.js";
import { EXIT } from "../../../../src/tools/cli/io.js";
import { allCommands } from "../../../../src/tools/cli/commands.js";
import { readPage } from "../../../support/fixtures/pages.js";

const COMMANDS = await allCommands();
const page = readPage("docs/cli.md");
const jsonPage = readPage("docs/cli-json.md");
const section = (title: string) =>
  page
    .split(/^## /m)
    .find((part) => part.startsWith(`${title}\n`))
    ?.slice(title.length) ?? "";
const firstCells = (title: string) =>
  [...section(title).matchAll(/^\| (\S+) +\|/gm)].map(([, cell = ""]) => cell).slice(1);

describe("docs/cli.md", () => {
  test("has each exit code of the program, and no other", () => {
    const codes = Object.values(EXIT).sort((a, b) => a - b);

    expect(firstCells("Exit codes").filter((cell) => /^\d/.test(cell))).toEqual(codes.map(String));
  });

  test("has each connection flag, and the rule for its variable", () => {
    const connection = section("Connection").replace(/\s+/g, " ");

    expect(Object.keys(CONNECTION_FLAGS).filter((flag) => !connection.includes(`\`--${flag}`))).toEqual([]);
    expect(connection).toContain("`ETCDCTL_ENDPOINTS` for `--endpoints`, and so on");
  });

  test("names the type that each command writes, which the schema has", () => {
    const rows = [...jsonPage.matchAll(/^\| (`.*?) +\| (.*?) *\|$/gm)];
    const commands = rows.flatMap(([, cell = ""]) => cell.match(/\w+/g) ?? []);
    const named = new Set(rows.flatMap(([, , cell = ""]) => cell.match(/\w+Json/g) ?? []));
    const { $defs } = JSON.parse(readPage("docs/cli.schema.json")) as { readonly $defs: object };
    const types = new Set(Object.keys($defs));

    expect(commands).toEqual(COMMANDS.map(({ name }) => name));
    expect([...named].filter((type) => !types.has(type))).toEqual([]);
  });

  test("mentions each command, and each own flag of one", () => {
    const missing = COMMANDS.flatMap(({ name, flags }) => [
      ...(page.includes(`leasehold ${name} `) ? [] : [name]),
      ...Object.keys(flags).filter((flag) => !page.includes(`--${flag}`)),
    ]);

    expect(missing).toEqual([]);
  });
});
