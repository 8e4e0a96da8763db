// What the program does when it cannot do its work, and what it says then.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync } from "node:fs";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Election } from "../../../src/index.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { CLI, runCli } from "../../support/programs/cli.js";
import { owned } from "../../support/programs/owned.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());
const endpoints = () => etcd.endpoints.join(",");

describe("leasehold", () => {
  test("without a command shows its commands and ends with 64; with --help, with 0", async () => {
    const [none, help] = await Promise.all([runCli([]), runCli(["--help"])]);

    expect([none.code, none.stdout]).toEqual([64, ""]);
    expect(none.stderr).toContain("leader NAME");
    expect([help.code, help.stdout]).toEqual([0, none.stderr]);
  });

  test("says on one line what is wrong with its words, and connects to nothing", async () => {
    const { code, stderr } = await runCli(["leader", "a", "--endpoint", "b:1"], { endpoints: "127.0.0.1:1" });

    expect([code, stderr]).toEqual([
      64,
      "leasehold: Unknown option '--endpoint': did you mean --endpoints?; see leasehold leader --help\n",
    ]);
  });

  test("suggests the command that a misspelled one may stand for, and explains one with help", async () => {
    const [misspelled, unknown, help, usual] = await Promise.all([
      runCli(["sohw", "a"]),
      runCli(["help", "xyzzy"]),
      runCli(["help", "run"]),
      runCli(["run", "--help"]),
    ]);

    expect([misspelled.code, misspelled.stderr]).toEqual([
      64,
      'leasehold: there is no command "sohw": did you mean show?; see leasehold --help\n',
    ]);
    expect([unknown.code, unknown.stderr]).toEqual([
      64,
      'leasehold: there is no command "xyzzy"; see leasehold --help\n',
    ]);
    expect([help.code, help.stdout]).toEqual([0, usual.stdout]);
  });

  test("that cannot reach etcd from the start ends with 69, also run, which else waits through an outage", async () => {
    const commands = [["ls"], ["run", "a", "--", "true"], ["run", "a", "--once", "1", "--", "true"]];
    const ends = await Promise.all(commands.map((words) => runCli(words, { endpoints: "127.0.0.1:1" })));

    for (const { code, stderr } of ends) {
      expect(code).toBe(69);
      expect(stderr).toMatch(/connect ECONNREFUSED 127\.0\.0\.1:1; start etcd, check --endpoints/);
    }
  });

  const hasFull = existsSync("/dev/full");
  test.runIf(hasFull)(
    "that cannot write its output says so, and ends with 74",
    { timeout: 90_000 },
    async () => {
      const cluster = connect({ hosts: etcd.endpoints });
      await new Election(cluster, "cli/full").campaign("web-1");
      const commands = [
        ...[["--help"], ["--version"], ["help", "ls"], ["ls", "--help"], ["ls"], ["leader", "cli/full"]],
        ...[
          ["leader", "cli/full", "--json"],
          ["release", "cli/full", "--yes"],
        ],
      ];
      for (const words of commands) {
        const command = [CLI, ...words, ...(words[0]?.startsWith("-") ? [] : ["--endpoints", endpoints()])];
        const full = openSync("/dev/full", "w");
        const child = owned(spawn(process.execPath, command, { stdio: ["ignore", full, "pipe"] }));
        closeSync(full);
        const exited = once(child, "exit") as Promise<[code: number | null]>;
        const [stderr, [code]] = await Promise.all([text(child.stderr!), exited]);

        expect([words, code]).toEqual([words, 74]);
        expect(stderr).toMatch(/^leasehold: cannot write to standard output: ENOSPC: .*\n$/);
      }
      await cluster.close();
    },
  );

  test("takes the flags of every command before its name, too", async () => {
    const before = ["--json", `--endpoints=${endpoints()}`, "--user", "nobody:x"];
    const [first, alone, own] = await Promise.all([
      runCli([...before.slice(0, 2), "leader", "cli/flags-first"]),
      runCli(before.slice(2)),
      runCli(["--permits", "2", "run", "a"]),
    ]);

    expect([first.code, JSON.parse(first.stdout)]).toEqual([1, { name: "cli/flags-first", leader: null }]);
    expect([alone.code, alone.stderr]).toEqual([64, expect.stringContaining("usage: leasehold COMMAND")]);
    // A command's own flags follow it.
    expect([own.code, own.stderr]).toEqual([
      64,
      'leasehold: there is no command "--permits"; see leasehold --help\n',
    ]);
  });

  test("names the help of the command when the library rejects a word", async () => {
    const { stderr } = await runCli(["show", "/a"], { endpoints: endpoints() });

    expect(stderr).toMatch(/; see leasehold show --help\n$/);
  });

  test("says on one line that etcd does not answer, and what to do, also as JSON", async () => {
    const dead = { endpoints: "127.0.0.1:1" };
    const [text, json] = await Promise.all([
      runCli(["leader", "a"], dead),
      runCli(["leader", "a", "--json"], dead),
    ]);

    expect([text.code, text.stdout]).toEqual([69, ""]);
    expect(text.stderr).toMatch(
      /^leasehold: no etcd reached within 3 s .*127\.0\.0\.1:1.*; start etcd, check --endpoints,.*\n$/,
    );
    expect(JSON.parse(json.stderr)).toEqual({
      error: {
        message: expect.stringContaining("127.0.0.1:1") as string,
        hint: expect.any(String) as string,
        exitCode: 69,
      },
    });
  });

  test("names a bad lock name and its rule", async () => {
    const { code, stderr } = await runCli(["leader", "/a"], { endpoints: endpoints() });

    expect(code).toBe(64);
    expect(stderr).toMatch(/^leasehold: Expected name to be .*\n$/);
  });
});

describe("leasehold leader", () => {
  test("prints the leader's value, escaped, and ends with 1 without one", async () => {
    const cluster = connect({ hosts: etcd.endpoints });
    const leadership = await new Election(cluster, "cli/leader").campaign("web-1\u001b[31m");
    const [text, json, none, silent] = await Promise.all([
      runCli(["leader", "cli/leader"], { endpoints: endpoints() }),
      runCli(["leader", "cli/leader", "--json"], { endpoints: endpoints() }),
      runCli(["leader", "cli/nobody", "--json"], { endpoints: endpoints() }),
      runCli(["leader", "cli/nobody"], { endpoints: endpoints() }),
    ]);
    await leadership.resign();
    await cluster.close();

    expect([text.code, text.stdout]).toEqual([0, "web-1\\u001b[31m\n"]);
    expect([json.code, JSON.parse(json.stdout)]).toEqual([
      0,
      { name: "cli/leader", leader: expect.objectContaining({ value: "web-1\u001b[31m" }) as object },
    ]);
    expect([none.code, JSON.parse(none.stdout)]).toEqual([1, { name: "cli/nobody", leader: null }]);
    expect([silent.code, silent.stdout, silent.stderr]).toEqual([
      1,
      "",
      'leasehold: "cli/nobody" has no leader\n',
    ]);
  });
});
