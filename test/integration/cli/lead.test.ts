// `leasehold lead` with a real etcd: terms, the end of the command, signals.
import os from "node:os";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Election, type Cluster } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { startCli } from "../../support/programs/cli.js";
import { isRunning } from "../../support/programs/process-state.js";

let etcd: EtcdCluster;
let cluster: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
});
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});
const start = (...words: readonly string[]) =>
  startCli(["lead", ...words], { endpoints: etcd.endpoints.join(",") });
const script = (text: string) => ["--ttl", "2s", "--", "sh", "-c", text];
const leaderOf = (name: string) => new Election(cluster, name).leader();

describe("leasehold lead", () => {
  test("runs the command as leader with its value, and resigns with its code when it ends", async () => {
    const end = "echo fence $LEASEHOLD_FENCE; read line; exit 5";
    const [plain, named] = [
      start("lead/a", ...script(end)),
      start("lead/b", "--value", "http://b", ...script(end)),
    ];
    await Promise.all([plain.says(/fence \d+\n/), named.says(/fence \d+\n/)]);
    const [a, b] = await Promise.all([leaderOf("lead/a"), leaderOf("lead/b")]);

    expect([a?.value, b?.value]).toEqual([`${os.hostname()}:${plain.child.pid}`, "http://b"]);
    expect([plain.stdout(), named.stdout()]).toEqual([`fence ${a?.fence}\n`, `fence ${b?.fence}\n`]);
    plain.child.stdin?.end("\n");
    named.child.stdin?.end("\n");
    expect([(await plain.ended).code, (await named.ended).code]).toEqual([5, 5]);
    expect([await leaderOf("lead/a"), await leaderOf("lead/b")]).toEqual([undefined, undefined]);
  });

  test("ends the command when the leadership is lost, and starts it anew in the next term", async () => {
    const cli = start(
      "lead/lost",
      ...script("trap '' TERM; sleep 1000 & echo term $LEASEHOLD_FENCE $$ $!; wait; wait"),
    );
    await cli.says(/term .*\n/);
    const [own] = await placesOf(etcd.member, "lead/lost");
    await etcd.etcdctl(["del", own?.key ?? ""]);
    await cli.says(/term .*\n[^]*term .*\n/);
    const [first = [], second = []] = [...cli.stdout().matchAll(/term (\d+) (\d+) (\d+)\n/g)].map(
      ([, ...words]) => words.map(Number),
    );

    expect(second[0]).toBeGreaterThan(first[0] ?? Infinity);
    expect([...first.slice(1), ...second.slice(1)].map(isRunning)).toEqual([false, false, true, true]);
    // The guardian has its order a moment after the start of the command.
    await leaderOf("lead/lost");
    cli.child.kill("SIGKILL");
    await expect.poll(() => second.slice(1).some(isRunning)).toBe(false);
  });

  test("leaves SIGHUP to the command, and campaigns again after a later loss", async () => {
    const cli = start(
      "lead/reload",
      ...script("trap 'echo reloaded' HUP; echo term; while :; do sleep 0.05; done"),
    );
    await cli.says("term\n");
    cli.child.kill("SIGHUP");
    await cli.says("reloaded\n");
    const [own] = await placesOf(etcd.member, "lead/reload");
    await etcd.etcdctl(["del", own?.key ?? ""]);

    await cli.says(/reloaded\nterm\n/);
    cli.child.kill("SIGTERM");
    expect(await cli.ended).toMatchObject({ code: 143 });
  });

  test("passes a signal on while it leads, then resigns with the command's code", async () => {
    const cli = start(
      "lead/signal",
      ...script("trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"),
    );
    await cli.says("ready");
    cli.child.kill("SIGTERM");

    expect(await cli.ended).toMatchObject({ code: 9 });
    expect(await leaderOf("lead/signal")).toBeUndefined();
  });

  test("ends with 128+n, without a key, by a signal while another leads", async () => {
    const leadership = await new Election(cluster, "lead/other").campaign("other");
    const cli = start("lead/other", ...script("echo started"));
    await expect.poll(() => placesOf(etcd.member, "lead/other")).toHaveLength(2);
    cli.child.kill("SIGINT");

    expect(await cli.ended).toMatchObject({ code: 130, stdout: "", stderr: "" });
    expect(await placesOf(etcd.member, "lead/other")).toHaveLength(1);
    await leadership.resign();
  });

  test("does not lead on with a command that does not exist: 127", async () => {
    const { code, stderr } = await start("lead/none", "--", "no-such-command").ended;

    expect([code, stderr]).toEqual([127, "leasehold: no-such-command: command not found\n"]);
    expect(await leaderOf("lead/none")).toBeUndefined();
  });
});
