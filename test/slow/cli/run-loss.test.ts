// What `leasehold run` does to its command when the lock is lost, and when leasehold itself ends or stands still.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { startCli, type RunningCli } from "../../support/programs/cli.js";
import { isRunning, pidsIn, STUBBORN } from "../../support/programs/process-state.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());
const start = (name: string, ...words: readonly string[]) =>
  startCli(["run", name, ...words], { endpoints: etcd.endpoints.join(",") });
const keysOf = (name: string) => placesOf(etcd.member, name);

const TTL_MS = 2000;

/** A command that ignores SIGTERM, with a grandchild. */
async function startStubborn(name: string, ...flags: readonly string[]) {
  const cli = start(name, "--json", "--ttl", "2s", ...flags, "--", "sh", "-c", STUBBORN);
  await Promise.all([cli.says(/pid \d+ \d+\n/), cli.says('"event":"started"')]);
  const pids = pidsIn(cli.stdout());
  expect(pids.map(isRunning)).toEqual([true, true]);
  return { cli, pids };
}

const areGone = (pids: readonly number[]) => !pids.some(isRunning);
const whenGone = (pids: readonly number[]) => expect.poll(() => areGone(pids), { interval: 5 }).toBe(true);

/** The keys at the moment when the processes are gone. */
async function keysWhenGone({ pids }: { readonly pids: readonly number[] }, name: string) {
  await whenGone(pids);
  return keysOf(name);
}

const eventsOf = ({ stderr }: RunningCli) =>
  stderr()
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
const lastOf = (cli: RunningCli) => eventsOf(cli).at(-1);

describe("child and grandchild are gone", () => {
  test("when the key was deleted, at once, also in the first second of the hold: 76", async () => {
    const { cli, pids } = await startStubborn("lost/deleted");
    const [own] = await keysOf("lost/deleted");
    const begin = performance.now();
    await etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(own?.key ?? "").toString("base64") });
    await whenGone(pids);
    const tookMs = performance.now() - begin;
    const { code } = await cli.ended;

    // The library's own watch of the key begins after a second, half of the TTL.
    expect(tookMs).toBeLessThan(TTL_MS / 4);
    expect([code, areGone(pids)]).toEqual([76, true]);
    expect(lastOf(cli)).toMatchObject({
      ...{ event: "lost", loss: "deleted", ranOnMs: 0, commandCode: 137 },
      message: expect.stringMatching(
        /^ended the command: Lock "lost\/deleted" lost: its key was deleted/,
      ) as string,
    });
  });

  test("when the lease was revoked: 76", async () => {
    const { cli, pids } = await startStubborn("lost/revoked");
    const [own] = await keysOf("lost/revoked");
    await etcd.etcdctl(["lease", "revoke", (own?.leaseId ?? 0n).toString(16)]);
    const { code } = await cli.ended;

    expect([code, areGone(pids)]).toEqual([76, true]);
    expect(lastOf(cli)).toMatchObject({ event: "lost", loss: "revoked", ranOnMs: 0 });
  });

  test("when leasehold was killed, while its key still excludes others", async () => {
    const stubborn = await startStubborn("lost/killed");
    stubborn.cli.child.kill("SIGKILL");

    expect(await keysWhenGone(stubborn, "lost/killed")).toHaveLength(1);
  });

  test("when leasehold was stopped, while its key still excludes others: 76 after it was continued", async () => {
    const stubborn = await startStubborn("lost/stopped");
    stubborn.cli.child.kill("SIGSTOP");

    expect(await keysWhenGone(stubborn, "lost/stopped")).toHaveLength(1);
    await expect.poll(() => keysOf("lost/stopped")).toEqual([]);
    stubborn.cli.child.kill("SIGCONT");
    expect((await stubborn.cli.ended).code).toBe(76);
    expect(lastOf(stubborn.cli)).toMatchObject({
      event: "lost",
      loss: "expired",
      byGuardian: true,
      ranOnMs: 0,
    });
  });

  test("when etcd stands still: SIGTERM, SIGKILL, and 76, before the lease is over", async () => {
    const stubborn = await startStubborn("lost/paused");
    etcd.member.pause();
    await whenGone(stubborn.pids);
    etcd.member.resume();

    expect((await stubborn.cli.ended).code).toBe(76);
    expect(eventsOf(stubborn.cli)).toMatchObject([
      { event: "started" },
      {
        event: "ending",
        reason: "unanswered",
        message: expect.stringMatching(/for 1\.\d+ s \(TTL 2 s\)/) as string,
      },
      { event: "killed" },
      // The session's deadline passes while etcd stands still, or the renewal comes first: the group is gone in either case.
      { event: "lost", commandCode: 137, ranOnMs: 0, byGuardian: false },
    ]);
  });

  test("when --max-hold has passed: 76, and the lock is free", async () => {
    const { cli, pids } = await startStubborn("lost/max-hold", "--max-hold", "300ms");
    const { code } = await cli.ended;

    expect([code, areGone(pids), await keysOf("lost/max-hold")]).toEqual([76, true, []]);
    expect(lastOf(cli)).toMatchObject({ event: "lost", reason: "max_hold", commandCode: 137 });
  });

  test("before the release, when the command leaves a process behind in its group", async () => {
    const cli = start(
      "left",
      "--ttl",
      "2s",
      "--",
      "sh",
      "-c",
      "(trap '' TERM; sleep 1000 & wait) & echo pid $!; exit 4",
    );
    const { code, stdout, stderr } = await cli.ended;

    expect([code, areGone(pidsIn(stdout))]).toEqual([4, true]);
    expect(stderr).toContain("has left processes behind in its process group");
  });
});

test("a command that ends in its grace is not killed, and one whose lease is renewed meanwhile is ended, too", async () => {
  const script = `trap 'echo ending; kill -STOP $$; exit 5' TERM; echo ready; while :; do sleep 0.05; done`;
  const cli = start("renewed", "--ttl", "6s", "--grace", "2s", "--", "sh", "-c", `echo pid $$; ${script}`);
  await cli.says("ready");
  const [pid = 0] = pidsIn(cli.stdout());
  etcd.member.pause();
  await cli.says("ending");
  etcd.member.resume();
  await cli.says("etcd has renewed the lease");
  process.kill(pid, "SIGCONT");

  expect((await cli.ended).code).toBe(76);
  expect(cli.stderr()).not.toContain("SIGKILL");
  expect(await keysOf("renewed")).toEqual([]);
});
