// `leasehold run --once` with a real etcd.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, once, type Cluster } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { runCli, startCli } from "../../support/programs/cli.js";

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
const settings = () => ({ endpoints: etcd.endpoints.join(",") });
const run = (words: readonly string[]) => runCli(["run", ...words], settings());
const start = (words: readonly string[]) => startCli(["run", ...words], settings());
const script = (text: string) => ["--", "sh", "-c", text];

describe("leasehold run --once", () => {
  test("runs the command of a slot once, with its exit code, and says so to later callers with 0", async () => {
    const words = ["cli/once", "--once", "202601020304", ...script("echo ran with $LEASEHOLD_FENCE; exit 7")];

    const first = await run(words);
    expect(first).toMatchObject({ code: 7, stderr: "" });
    expect(first.stdout).toMatch(/^ran with \d+\n$/);
    const second = await run(words);
    expect(second).toMatchObject({ code: 0, stdout: "" });
    expect(second.stderr).toMatch(
      /^leasehold: slot 202601020304 of cli\/once was run before, by \S+:\d+: the command is not run\n$/,
    );
    expect(await placesOf(etcd.member, "cli/once")).toEqual([]);
  });

  test("shares its slots with the library, and writes one event with --json", async () => {
    await once(cluster, "cli/shared", 5, () => undefined);

    const { code, stderr } = await run(["cli/shared", "--json", "--once", "5", ...script("echo ran")]);
    expect(code).toBe(0);
    expect(JSON.parse(stderr)).toMatchObject({
      ...{ event: "once", name: "cli/shared", slot: 5, why: "done", failed: false },
      ...{ owner: expect.any(String) as string, since: expect.any(String) as string },
      message: expect.any(String) as string,
    });
  });

  test("tells a run whose leasehold was killed, runs it again only with --rerun if-lost", async () => {
    const words = ["cli/killed", "--once", "1", "--ttl", "2s"];
    const killed = start([...words, ...script("echo begun; sleep 60")]);
    await killed.says("begun");
    const running = await run([...words, ...script("echo ran")]);
    expect(running).toMatchObject({ code: 0, stdout: "" });
    expect(running.stderr).toContain("is running");
    killed.child.kill("SIGKILL");
    await killed.ended;
    await expect.poll(() => placesOf(etcd.member, "cli/killed")).toEqual([]);

    const told = await run([...words, ...script("echo ran")]);
    expect(told).toMatchObject({ code: 76, stdout: "" });
    expect(told.stderr).toContain("slot 1 of cli/killed was begun, and its run was lost, by");
    const again = await run([...words, "--rerun", "if-lost", ...script("echo ran")]);
    expect(again).toMatchObject({ code: 0, stdout: "ran\n", stderr: "" });
    expect((await run([...words, ...script("echo ran")])).stderr).toContain("was run before");
  });

  test("does not count a command that was ended, or that could not be started, as run", async () => {
    const ended = await run(["cli/ended", "--once", "1", "--max-hold", "300ms", ...script("sleep 60")]);
    expect(ended.code).toBe(76);
    const missing = await run(["cli/ended", "--once", "2", "--", "no-such-command"]);
    expect(missing.code).toBe(127);

    expect(await run(["cli/ended", "--once", "1", ...script("echo ran")])).toMatchObject({ code: 76 });
    const again = ["cli/ended", "--once", "2", "--rerun", "if-lost", ...script("echo ran")];
    expect(await run(again)).toMatchObject({ code: 0, stdout: "ran\n" });
  });
});
