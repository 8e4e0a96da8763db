// leasehold completion: what the real shells complete. zsh and fish check their scripts where they are installed.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { COMMON_FLAGS } from "../../../src/tools/cli/arguments.js";
import { command } from "../../../src/tools/cli/command.js";
import { allCommands } from "../../../src/tools/cli/commands.js";
import { bashScript, fishScript, wordsOf, zshScript } from "../../../src/tools/cli/completion.js";
import { CLI, runCli } from "../../support/programs/cli.js";

const COMMANDS = await allCommands();

const folder = mkdtempSync(path.join(tmpdir(), "leasehold-completion-"));
afterAll(() => rmSync(folder, { recursive: true }));
function file(script: string): string {
  const name = path.join(folder, "script");
  writeFileSync(name, script);
  return name;
}

/** A command with everything that a command may have. */
const everything = command({
  ...{ name: "every", args: "NAME -- COMMAND", summary: "it's [a]: $(summary)", help: [] },
  positionals: [1, 1],
  takesCommand: true,
  flags: {
    mode: { value: "read|write", short: "m", text: "it's [a]: `text`" },
    wait: { value: "DURATION", text: "b" },
  },
  run: () => Promise.resolve(0),
});

const SHOW = `_leasehold; printf '%s\\n' "\${COMPREPLY[@]}"`;

/** What bash offers for the last word. */
function inBash(load: string, words: readonly string[]): string[] {
  const script = `${load}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); ${SHOW}`;
  const stdout = execFileSync("bash", ["--norc", "-c", script, "bash", ...words], { encoding: "utf8" });
  return stdout.split("\n").filter((line) => line !== "");
}

const BUILT = `source <('${process.execPath}' '${CLI}' completion bash)`;
const built = (...words: string[]) => inBash(BUILT, ["leasehold", ...words]);
const ofEverything = (...words: string[]) =>
  inBash(bashScript(wordsOf([everything])), ["leasehold", ...words]);
const flagsOf = (flags: object) => Object.keys(flags).map((flag) => `--${flag}`);

describe("bash completes", () => {
  test("the commands, all of those that the program has", () => {
    const names = COMMANDS.map(({ name }) => name);

    expect(built("")).toEqual([...names, "--help", "--version"]);
    expect(built("comp")).toEqual(["completion"]);
  });

  test.each(COMMANDS.map((each) => [each.name, each] as const))("all flags of %s", (name, { flags }) => {
    const expected = flagsOf({ ...flags, ...COMMON_FLAGS });

    expect(built(name, "--").sort()).toEqual(expected.sort());
    expect(built(name, "a", "--json", "--endp")).toEqual(["--endpoints"]);
  });

  test("words of a choice, also behind =", () => {
    expect(built("completion", "")).toEqual(["bash", "zsh", "fish"]);
    expect(built("release", "--as", "")).toEqual(["name", "key"]);
    expect(built("release", "--as", "=", "k")).toEqual(["key"]);
    expect(built("release", "--as", "=")).toEqual(["name", "key"]);
    expect(ofEverything("every", "-m", "w")).toEqual(["write"]);
  });

  test("files where a flag takes one, and nothing where it takes a text or a name", () => {
    expect(built("ls", "--cacert", "package.j")).toEqual(["package.json"]);
    expect(built("ls", "--cacert", "=", "package.j")).toEqual(["package.json"]);
    expect(built("ls", "--endpoints", "pack")).toEqual([]);
    expect(built("show", "pack")).toEqual([]);
  });

  test("behind -- the command to run and its files, if the command runs one", () => {
    expect(ofEverything("every", "a", "--", "bas")).toContain("bash");
    expect(ofEverything("every", "a", "--", "cat", "package.j")).toEqual(["package.json"]);
    expect(ofEverything("every", "a", "--mode", "")).toEqual(["read", "write"]);
    expect(built("show", "a", "--", "bas")).toEqual([]);
  });
});

describe.each([
  ["bash", bashScript],
  ["zsh", zshScript],
  ["fish", fishScript],
] as const)("the script of %s", (shell, scriptOf) => {
  test("has each command and flag once for each command", async () => {
    const { code, stdout } = await runCli(["completion", shell]);
    const json = await runCli(["completion", shell, "--json"]);
    const count = (flag: string) =>
      COMMANDS.filter(({ flags }) => flag in { ...flags, ...COMMON_FLAGS }).length;
    const spelled = (flag: string) => stdout.split(new RegExp(`(?:--|-l )${flag}(?![a-z-])`)).length - 1;

    expect(code).toBe(0);
    for (const { name } of COMMANDS) expect(stdout).toMatch(new RegExp(`\\b${name}\\b`));
    for (const flag of COMMANDS.flatMap(({ flags }) => Object.keys({ ...flags, ...COMMON_FLAGS })))
      expect(spelled(flag)).toBeGreaterThanOrEqual(count(flag));
    expect(JSON.parse(json.stdout)).toEqual({ shell, script: stdout });
  });

  // On a machine without the shell, only the quotes are checked.
  test("has no syntax error, whatever the texts of a command contain", () => {
    const script = scriptOf(wordsOf([everything, ...COMMANDS]));
    const { error, status, stderr } = spawnSync(shell, ["-n", file(script)], { encoding: "utf8" });

    if (error) expect(outsideQuotes(script, shell)).not.toContain("$(summary)");
    else expect([status, stderr]).toEqual([0, ""]);
  });
});

/** The script without its quoted texts. */
const outsideQuotes = (script: string, shell: string) =>
  script.replaceAll(shell === "fish" ? /'(?:\\.|[^'\\])*'/g : /\\.|'[^']*'/g, "");

test("an unknown shell is one line and code 64", async () => {
  const { code, stdout, stderr } = await runCli(["completion", "tcsh"]);

  expect([code, stdout, stderr]).toEqual([
    64,
    "",
    'leasehold: a shell must be bash, zsh or fish, got "tcsh"; see leasehold completion --help\n',
  ]);
});
