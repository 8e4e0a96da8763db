// leasehold observe: every change of leader or value, until a signal or until nobody reads.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { Election } from "../../../src/index.js";
import { EtcdctlElect } from "../../support/clients/etcdctl-elect.js";
import { putKeys } from "../../support/clients/many-keys.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { CLI, startCli } from "../../support/programs/cli.js";
import { owned } from "../../support/programs/owned.js";

const two = twoSessions(30);
const endpoints = () => two.etcd.endpoints.join(",");
const start = (words: string[], terminal = false) =>
  startCli(["observe", ...words], { endpoints: endpoints(), terminal });

describe("leasehold observe", () => {
  test("prints a line for each leader, value and vacancy, also of etcdctl, and ends with 130 on SIGINT", async () => {
    const name = "observe/all";
    const program = start([name]);
    await program.says("no leader\n");
    const leadership = await new Election(two.holder, name).campaign("first");
    await program.says(/ {2}first\n/);
    await leadership.proclaim("second");
    await program.says(/ {2}second\n/);
    await leadership.resign();
    await program.says(/second\nno leader\n/);
    const other = new EtcdctlElect(two.etcd, name, "from etcdctl");
    await program.says(/ {2}from etcdctl\n/);
    // A signal during its campaign would leave its key until its lease ends.
    await other.leader();
    await other.resign();
    await program.says(/etcdctl\nno leader\n/);

    program.child.kill("SIGINT");

    const { code, signal, stdout, stderr } = await program.ended;
    expect([code, signal, stderr]).toEqual([130, null, ""]);
    const fence = leadership.fence.toString();
    expect(stdout.split("\n")).toEqual([
      "no leader",
      `leader  ${fence}  first`,
      `leader  ${fence}  second`,
      "no leader",
      expect.stringMatching(/^leader {2}\d+ {2}from etcdctl$/),
      "no leader",
      "",
    ]);
  });

  test("prints one object on a line with --json, null for no leader", async () => {
    const name = "observe/json";
    const program = start([name, "--json"]);
    await program.says('"leader":null');
    const leadership = await new Election(two.holder, name).campaign("a\nb");
    await program.says('"value":"a\\nb"');
    await leadership.resign();
    await program.says(/null\}\n.*\n.*null\}\n$/);

    program.child.kill("SIGTERM");

    const { code, stdout } = await program.ended;
    expect(code).toBe(143);
    const fence = leadership.fence.toString();
    expect(
      stdout
        .split("\n")
        .slice(0, -1)
        .map((line) => JSON.parse(line) as unknown),
    ).toEqual([
      { name, leader: null },
      {
        name,
        leader: expect.objectContaining({ key: leadership.key, value: "a\nb", fence }) as object,
      },
      { name, leader: null },
    ]);
  });

  test("lets no value pass for a vacancy or a second line, and cuts a large one on a terminal", async () => {
    const name = "observe/hostile";
    await putKeys(two.etcd.member, [`${name}/6a1f`], { value: "no leader\n\u001b[2J".repeat(70_000) });
    const [plain, terminal] = [start([name]), start([name], true)];
    await Promise.all([plain.says("\n"), terminal.says("\n")]);

    plain.child.kill("SIGINT");
    terminal.child.stdin!.write("\u0003");

    const ended = await Promise.all([plain.ended, terminal.ended]);
    expect(ended.map(({ code }) => code)).toEqual([130, 130]);
    const [whole, cut] = ended.map(({ stdout }) => stdout);
    expect(whole).toMatch(/^leader {2}\d+ {2}(no leader\\u000a\\u001b\[2J){70000}\n$/);
    expect(cut).toMatch(/^leader {2}\d+ {2}no leader\\u000a\\u001b\[2J[^\u001b]{100,200}…\r\n/);
  });

  test("ends without an error text, as of SIGPIPE, when the reader has read enough", async () => {
    const name = "observe/closed";
    const leadership = await new Election(two.holder, name).campaign("1");
    const pipe = `"$0" "$1" observe "$2" | head -1; exit "\${PIPESTATUS[0]}"`;
    const child = owned(
      spawn("bash", ["-c", pipe, process.execPath, CLI, name], {
        env: { ...process.env, ETCDCTL_ENDPOINTS: endpoints() },
        stdio: ["ignore", "pipe", "pipe"],
      }),
    );
    const closed = once(child, "close");
    const [stdout, stderr] = [text(child.stdout), text(child.stderr)];
    let ended = false;
    void closed.then(() => (ended = true));

    // It learns that nobody reads with its next line.
    for (let n = 2; !ended; n++) await leadership.proclaim(String(n));

    expect([await closed, await stderr]).toEqual([[128 + 13, null], ""]);
    expect(await stdout).toMatch(/^leader {2}\d+ {2}\d+\n$/);
    await leadership.resign();
  });
});
