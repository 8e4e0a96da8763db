// The program on a pseudo-terminal: no line is wider than it, and the last column of a table is whole.
import { describe, expect, test } from "vitest";
import { width } from "../../../src/tools/cli/io.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { startCli } from "../../support/programs/cli.js";
import { Screen } from "../../support/programs/screen.js";

const two = twoSessions(30);
const OWNER = `a\u001b[31m\u202e\n${"a very long owner ".repeat(20)}`;
const UNREACHABLE = "127.0.0.1:1";

type Size = readonly [columns: number, rows: number];

const start = ([columns, rows]: Size, words: readonly string[], endpoints = two.etcd.endpoints.join(",")) =>
  startCli(words, {
    ...{ endpoints, terminal: true, before: `stty cols ${columns} rows ${rows}`, env: { TERM: "xterm" } },
  });

/** The lines of a program that has ended. */
async function linesOf(size: Size, words: readonly string[], endpoints?: string): Promise<string[]> {
  const { stdout } = await start(size, words, endpoints).ended;
  return stdout.split("\r\n");
}

const tooWide = (lines: readonly string[], [columns]: Size) => lines.filter((line) => width(line) > columns);
/** The words of a text, however its lines are broken. */
const joined = (lines: readonly string[]) => lines.join(" ").replaceAll(/\s+/g, " ");

async function crowd(name: string): Promise<void> {
  const { member } = two.etcd;
  const leaseId = await grantLease(member, 600);
  const value = JSON.stringify({ owner: OWNER, since: new Date().toISOString(), id: "1" });
  await putKeys(member, [`${name}/6a1f`, `${name}/6a2f`], { leaseId, value });
}

describe.each<Size>([
  [80, 24],
  [200, 50],
])("on a terminal of %d columns and %d rows", (columns, rows) => {
  const size: Size = [columns, rows];
  const folder = `width/${columns}`;

  test("ls and show fit, with whole names, keys and numbers, and escaped owners", async () => {
    await crowd(`${folder}/queue`);
    const [ls, show] = await Promise.all([
      linesOf(size, ["ls", `${folder}/`]),
      linesOf(size, ["show", `${folder}/queue`]),
    ]);

    expect(tooWide([...ls, ...show], size)).toEqual([]);
    expect(ls[0]).toMatch(/^NAME .* WAITERS$/);
    expect(ls[1]).toMatch(new RegExp(`^${folder}/queue  \\w+ .* 1$`));
    expect(show[1]).toMatch(/^STATE .* KEY$/);
    expect(show.slice(2, 4).map((line) => line.split(" ").at(-1))).toEqual([
      `${folder}/queue/6a1f`,
      `${folder}/queue/6a2f`,
    ]);
    expect(joined([...ls, ...show])).not.toMatch(/[\u001b\u202e]/);
  });

  test("once and the runs in show fit, with whole slots", async () => {
    const name = `${folder}/once`;
    const [slot, error] = ["s".repeat(2 * columns), { name: OWNER, message: OWNER }];
    const value = JSON.stringify({
      state: "failed",
      owner: OWNER,
      since: new Date(),
      ended: new Date(),
      error,
    });
    const numbers = Array.from({ length: 100 }, (_, n) => String(10 ** 15 + n).padStart(16, "0"));
    const keys = [...numbers, `=${slot}`].map((end) => `/leasehold/once/${name}//${end}`);
    await putKeys(two.etcd.member, keys.slice(0, 100), { value });
    await putKeys(two.etcd.member, keys.slice(100), { value });
    const [once, show] = await Promise.all([linesOf(size, ["once", name]), linesOf(size, ["show", name])]);

    // A slot that does not fit stands on a line of its own, as a name does.
    expect(tooWide([...once, ...show], size)).toEqual([`"${slot}"`]);
    expect(once[0]).toMatch(/^SLOT .* ERROR$/);
    expect(joined(show)).toMatch(
      /runs of once: 0 running, 0 done, 100 failed, 0 lost,\s+of the youngest 100/,
    );
    expect(joined([...once, ...show])).not.toMatch(/[\u001b\u202e]/);
  });

  test("top fits, and its last column is whole", async () => {
    await crowd(`${folder}/top`);
    const top = start(size, ["top", `${folder}/top`]);
    // Wider than the terminal, so that a line that is too wide shows.
    const screen = new Screen(2 * columns, rows);
    let read = 0;
    const shown = () => {
      const output = top.stdout();
      screen.write(output.slice(read));
      read = output.length;
      return screen.text;
    };
    await expect.poll(shown).toMatch(/RATE\n.* 0\/s$/m);
    top.child.stdin?.write("q");

    expect(tooWide(screen.lines, size)).toEqual([]);
    expect(screen.lines.length).toBe(rows);
    expect((await top.ended).code).toBe(0);
    const once = await linesOf(size, ["top", "--once", `${folder}/top`]);
    expect(tooWide(once, size)).toEqual([]);
    expect(once[0]).toMatch(/^NAME .* HELD$/);
    expect(once[1]).toMatch(/^\S+ .* 1 +1 +\S+ m?s$/);
  });

  test("doctor fits, and begins with its verdict", async () => {
    const lines = await linesOf(size, ["doctor", "--ttl", "2s", `${folder}/`]);
    const broken = await linesOf(size, ["doctor"], UNREACHABLE);

    expect(tooWide([...lines, ...broken], size)).toEqual([]);
    expect(lines[0]).toMatch(/^(all is well|works, with warnings): 0 failed, \d warnings?, 0 not checked$/);
    expect(broken[0]).toMatch(/^something is wrong: \d failed, /);
    expect(broken[1]).toContain(`  fail  http://${UNREACHABLE}: reach: `);
  });

  test("lead without etcd says so in lines that fit", async () => {
    const lead = start(size, ["lead", `${folder}/lead`, "--", "true"], UNREACHABLE);
    await lead.says(/next\s+attempt\s+in\s+\d+\s+m?s/);
    lead.child.stdin?.write("\u0003");
    const { stdout } = await lead.ended;

    expect(tooWide(stdout.split("\r\n"), size)).toEqual([]);
    expect(stdout).toMatch(/^leasehold: /);
    // The program has no such option.
    expect(stdout).not.toContain("timeoutMs");
  });

  test("run that waits fits one line", async () => {
    const name = `${folder}/run`;
    await crowd(name);
    const run = start(size, ["run", name, "--", "true"]);
    await run.says("leasehold: waiting for");
    run.child.stdin?.write("\u0003");
    const { stdout } = await run.ended;
    const [, status = ""] = /\r(leasehold: waiting for[^\r]*?)\u001b\[K/.exec(stdout) ?? [];

    expect(width(status)).toBeLessThan(columns);
    expect(stdout).not.toContain("\n\u001b");
  });

  test("help run and a misspelled flag fit, with the suggestion", async () => {
    const [help, command, flag] = await Promise.all([
      linesOf(size, ["help", "run"]),
      linesOf(size, ["sohw"]),
      linesOf(size, ["leader", "--endpoint", "a"]),
    ]);

    expect(tooWide([...help, ...command, ...flag], size)).toEqual([]);
    expect(help[0]).toBe("usage: leasehold run [FLAGS] NAME -- COMMAND [ARGS]");
    expect(joined(help)).toContain("Signals are passed on to it.");
    expect(joined(command)).toContain('there is no command "sohw": did you mean show?; see leasehold --help');
    expect(joined(flag)).toContain("did you mean --endpoints?; see leasehold leader --help");
  });
});
