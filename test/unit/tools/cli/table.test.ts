// Tables and texts on a terminal: as wide as it is at most. With the real program: slow/cli/width.test.ts.
import { describe, expect, test } from "vitest";
import { helpOf, overview } from "../../../../src/tools/cli/arguments.js";
import { allCommands } from "../../../../src/tools/cli/commands.js";
import { GrowingTable, width, wrap } from "../../../../src/tools/cli/io.js";

const COMMANDS = await allCommands();
const tooWide = (text: string, room: number) => text.split("\n").filter((line) => width(line) > room);
const SHOW = ["STATE", "OWNER", "JOINED", "SINCE", "TTL LEFT", "LEASE", "FENCE", "KEY"];
const since = "2026-01-02T03:04:05.678Z";
const entry = (owner: string, key: string) => [
  ...["holding", owner, "12 s", since, "14 s", "0000000000006a1f", "4702", key],
];

describe("a table on a terminal", () => {
  test("leaves out what there is no room for, and has its last column whole", () => {
    const rows = [entry("web-3.eu-central-1.example.com:4242", "jobs/nightly/6a1f")];

    expect(new GrowingTable(SHOW, 80).add(rows)).toBe(
      [
        "STATE    OWNER                        JOINED  TTL LEFT  FENCE  KEY",
        "holding  web-3.eu-central-1.example…  12 s    14 s      4702   jobs/nightly/6a1f",
        "",
      ].join("\n"),
    );
    expect(new GrowingTable(SHOW, 200).add(rows)).toBe(new GrowingTable(SHOW).add(rows));
  });

  test("puts a name or a key that does not fit on a line of its own, whole", () => {
    const [name, key] = [`jobs/${"n".repeat(60)}`, `jobs/${"k".repeat(60)}/6a1f`];
    const ls = new GrowingTable(["NAME", "KIND", "HOLDER", "JOINED", "WAITERS"], 80);

    expect(ls.add([[name, "mutex", "the holder of it all", "1 s", "7"]]).split("\n")[1]).toBe(name);
    expect(new GrowingTable(SHOW, 80).add([entry("me", key)])).toContain(`\n  ${key}\n`);
  });

  test.each([80, 200])("of %d columns has one width for the rows of both its parts", (room) => {
    const [short, long] = [[entry("me", "a/1")], [entry("web-3.example.com:4242", "a/2")]];
    const table = new GrowingTable(SHOW, room);

    const lines = (table.add(short, long) + table.add(long)).trimEnd().split("\n");

    expect(lines).toHaveLength(3);
    expect(new Set(lines.map((line) => line.search(/KEY$|a\/\d$/))).size).toBe(1);
  });

  test.each([80, 200])("of %d columns is no wider, whatever owners contain, page by page", (room) => {
    const table = new GrowingTable(SHOW, room);
    const hostile = `\u001b[31m\u202e\n${"\u6f22\u5b57 ".repeat(100)}`;
    const text = [entry("me", "a/1"), entry(hostile, "a/2"), entry(hostile, `a\u001b[2J/${"x".repeat(60)}`)]
      .map((row) => table.add([row]))
      .join("");

    expect(tooWide(text, room)).toEqual([]);
    expect(text).not.toMatch(/[\u001b\u202e]/);
    expect(text).toContain(`a\\u001b[2J/${"x".repeat(60)}\n`);
  });
});

describe("the help", () => {
  test.each([80, 200])("fits a terminal of %d columns, and says all that it says elsewhere", (room) => {
    const words = (text: string) => text.replaceAll(/\s+/g, " ");
    for (const command of COMMANDS) {
      expect(tooWide(helpOf(command, room), room)).toEqual([]);
      expect(words(helpOf(command, room))).toBe(words(helpOf(command)));
    }
    expect(tooWide(overview(COMMANDS, room), room)).toEqual([]);
    expect(words(overview(COMMANDS, room))).toBe(words(overview(COMMANDS)));
  });
});

describe("a text that is wrapped", () => {
  test.each<readonly [text: string, columns: number, lines: readonly string[]]>([
    ["a b c", 3, ["a b", "  c"]],
    ["abc", 3, ["abc"]],
    ["  abcdefg", 5, ["  abc", "  def", "  g"]],
    ["\u6f22\u6f22\u6f22", 4, ["\u6f22\u6f22", "  \u6f22"]],
    ["", 4, []],
    ["a  b", Infinity, ["a  b"]],
  ])("%j in %d columns", (text, columns, lines) => expect(wrap(text, columns, "  ")).toEqual(lines));
});
