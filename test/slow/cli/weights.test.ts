// `leasehold run --permits N --weight W` with a real etcd: who runs beside whom, what a call that waits or fails says, and what others
// see of the weights. etcd's keys say who holds and waits.
import { expect, describe, test } from "vitest";
import { KindMismatchError, Semaphore } from "../../../src/index.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { type RunningCli, runCli, startCli } from "../../support/programs/cli.js";

const two = twoSessions(30);
const { deleteKey, queued } = etcdOf(two);
const settings = (more = {}) => ({ endpoints: two.etcd.endpoints.join(","), ...more });
/** Ten permits, unless the flags say another number. */
const words = (name: string, weight: number, ...flags: readonly string[]) => [
  ...["run", name, ...(flags.includes("--permits") ? [] : ["--permits", "10"]), "--weight", `${weight}`],
  ...flags,
];
const HOLDS = ["--", "sh", "-c", "echo runs; read line; exit 0"];
const start = (name: string, weight: number, ...flags: readonly string[]) =>
  startCli([...words(name, weight, ...flags), ...HOLDS], settings());
const run = (name: string, weight: number, ...flags: readonly string[]) =>
  runCli([...words(name, weight, ...flags), "--", "echo", "ran"], settings());
const semaphoreOf = (name: string, permits = 10) =>
  new Semaphore(two.session, name, permits, { weighted: true });

async function end(...programs: readonly RunningCli[]): Promise<(number | null)[]> {
  for (const { child } of programs) child.stdin?.end("\n");
  return Promise.all(programs.map(async ({ ended }) => (await ended).code));
}

describe.concurrent("commands with weights", () => {
  test("run beside each other while there are permits for all of them, and the next one says who has how many", async () => {
    const name = "beside";
    const first = start(name, 3, "--owner", "web-1");
    await first.says("runs");
    const second = start(name, 6, "--owner", "web-2");
    await second.says("runs");
    const third = start(name, 2);
    await third.says(
      "waiting for beside: held by web-1 and 1 more (9 of 10 permits), 2 ahead in the queue\n",
    );
    const [all, some] = await Promise.all(
      [[], ["--limit", "1"]].map((flags) => runCli(["show", name, ...flags], settings())),
    );

    expect(all?.stdout).toMatch(/^beside {2}semaphore {2}2 holding 9 of 10 permits, 1 waiting\n/);
    expect(some?.stdout).toMatch(/^beside {2}semaphore {2}2 holding, 1 waiting\n/);
    expect(await end(first)).toEqual([0]);
    await third.says("runs");
    expect(await end(second, third)).toEqual([0, 0]);
    expect(await two.places(name)).toEqual([]);
  });

  test("wait behind a heavier one, although there is room for them, and are not overtaken with --try", async () => {
    const name = "order";
    const holds = start(name, 6);
    await holds.says("runs");
    const heavy = start(name, 8);
    await heavy.says("1 ahead in the queue");
    const light = start(name, 1);
    await light.says("2 ahead in the queue");
    const attempt = await run(name, 1, "--try");

    expect(attempt).toMatchObject({ code: 75, stdout: "" });
    expect(attempt.stderr).toMatch(/^leasehold: lock "order" is taken: held by \S+ \(6 of 10 permits\)\n$/);
    expect(await end(holds)).toEqual([0]);
    await Promise.all([heavy.says("runs"), light.says("runs")]);
    expect(await end(heavy, light)).toEqual([0, 0]);
  });

  test("enter at once when the heavy one before them gives up, which leaves no key", async () => {
    const name = "gives-up";
    const hold = await semaphoreOf(name).acquire({ weight: 6 });
    const heavy = start(name, 5);
    await queued(name, 2);
    const [light, lighter] = [start(name, 3), start(name, 1)];
    await queued(name, 4);

    heavy.child.kill("SIGTERM");
    expect((await heavy.ended).code).toBe(128 + 15);
    await Promise.all([light.says("runs"), lighter.says("runs")]);
    expect(await two.places(name)).toHaveLength(3);
    await hold.release();
    expect(await end(light, lighter)).toEqual([0, 0]);
  });

  test("of all permits are alone, and --try takes exactly what is left", async () => {
    const name = "whole";
    const hold = await semaphoreOf(name).acquire({ weight: 4 });
    const [fits, tooMuch] = [await run(name, 6, "--try"), await run(name, 7, "--try")];
    const whole = start(name, 10);
    await whole.says("1 ahead in the queue");
    await hold.release();
    await whole.says("runs");
    const beside = await run(name, 1, "--try");

    expect([fits.code, fits.stdout, tooMuch.code, beside.code]).toEqual([0, "ran\n", 75, 75]);
    expect(beside.stderr).toContain("(10 of 10 permits)");
    expect(await end(whole)).toEqual([0]);
  });

  test("count with the weights of the library, by the value of their keys", async () => {
    const name = "library";
    const program = start(name, 7);
    await program.says("runs");
    const semaphore = semaphoreOf(name);
    const tried = [await semaphore.tryAcquire({ weight: 4 }), await semaphore.tryAcquire({ weight: 3 })];
    const [own] = await two.places(name);
    const { stdout } = await two.etcd.etcdctl(["get", "--print-value-only", own?.key ?? ""]);

    expect(tried.map((hold) => hold !== undefined)).toEqual([false, true]);
    expect(JSON.parse(stdout)).toMatchObject({ weighted: { weight: 7, permits: 10 } });
    await tried[1]?.release();
    expect(await end(program)).toEqual([0]);
  });

  test.each([
    ["a weight of 1 rejects a plain permit", ["--weight", "1"], []],
    ["a plain permit rejects a weight", [], ["--weight", "1"]],
  ])("are of another kind than plain permits: %s, with 64", async (title, first, second) => {
    const name = `kinds/${title.replaceAll(/\W+/g, "-")}`;
    const holds = startCli(["run", name, "--permits", "2", ...first, ...HOLDS], settings());
    await holds.says("runs");
    const other = await runCli(["run", name, "--permits", "2", ...second, "--", "echo", "ran"], settings());
    const options = { weighted: second.length > 0 };
    const reason = await reasonOf(new Semaphore(two.session, name, 2, options).acquire());

    expect([other.code, other.stdout]).toEqual([64, ""]);
    expect(other.stderr).toContain("leasehold show NAME shows the queue");
    expect(reason).toBeInstanceOf(KindMismatchError);
    // Its entry leaves in the background.
    await expect.poll(() => two.places(name)).toHaveLength(1);
    expect(await end(holds)).toEqual([0]);
  });

  test("are bounded by --max-waiting, which counts those that wait and not their weights", async () => {
    const name = "bounded";
    const hold = await semaphoreOf(name).acquire({ weight: 9 });
    const waits = start(name, 8, "--max-waiting", "1");
    await waits.says("1 ahead in the queue");
    const late = await run(name, 1, "--max-waiting", "1");

    expect([late.code, late.stdout]).toEqual([75, ""]);
    expect(late.stderr).toContain('Queue of "bounded" is full: 1 wait, and maxWaiting is 1');
    await hold.release();
    await waits.says("runs");
    expect(await end(waits)).toEqual([0]);
  });

  test("get the signal of --on-wanted only when a call finds too few permits", async () => {
    const name = "wanted";
    const record =
      "exec 2>/dev/null; trap 'echo USR1; exit 7' USR1; echo ready; while :; do sleep 0.02; done";
    const flags = ["--on-wanted", "SIGUSR1", "--", "sh", "-c", record];
    const program = startCli([...words(name, 4), ...flags], settings());
    await program.says("ready");
    const beside = await semaphoreOf(name).acquire({ weight: 6 });
    await beside.release();
    const next = semaphoreOf(name).acquire({ weight: 7, reason: "render 4711" });
    const { code, stdout, stderr } = await program.ended;

    expect([code, stdout]).toEqual([7, "ready\nUSR1\n"]);
    expect(stderr).toMatch(
      /^leasehold: wanted is wanted by \S+ \(render 4711\): sent SIGUSR1 to the command\n$/,
    );
    await (await next).release();
  });

  test("wait for their turn as the oldest, where an older number of permits is smaller than their weight", async () => {
    const name = "rollout";
    const old = start(name, 1, "--permits", "4");
    await old.says("runs");
    const heavy = start(name, 8);
    await heavy.says("(1 of 4 permits), 1 ahead in the queue");

    expect(await end(old)).toEqual([0]);
    await heavy.says("runs");
    expect((await semaphoreOf(name).tryAcquire({ weight: 2 }))?.held).toBe(true);
    expect(await end(heavy)).toEqual([0]);
  });

  test.each(["key", "lease"])("end with 76 when the %s is lost, and the next one runs", async (what) => {
    const name = `lost/${what}`;
    const holds = start(name, 6, "--ttl", "10s");
    await holds.says("runs");
    const [own] = await two.places(name);
    const next = start(name, 5);
    await queued(name, 2);
    if (what === "key") await deleteKey(own?.key ?? "");
    else await two.etcd.etcdctl(["lease", "revoke", (own?.leaseId ?? 0n).toString(16)]);

    expect((await holds.ended).code).toBe(76);
    await next.says("runs");
    expect(await end(next)).toEqual([0]);
  });

  test("are in each line of JSON that names a holder, and plain permits have no weight in any", async () => {
    const name = "json";
    const hold = await semaphoreOf(`${name}/weighted`).acquire({ weight: 7 });
    const plain = await new Semaphore(two.session, `${name}/plain`, 1).acquire();
    const waits = start(`${name}/weighted`, 4, "--json");
    await waits.says('"waiting"');
    const next = startCli(["run", `${name}/plain`, "--permits", "1", "--json", ...HOLDS], settings());
    await next.says('"waiting"');
    const [event, other] = [waits, next].map(
      (cli) => JSON.parse(cli.stderr().split("\n")[0] ?? "") as unknown,
    );
    const top = await runCli(["top", `${name}/`, "--once", "--json"], settings());
    const { locks } = JSON.parse(top.stdout) as { locks: readonly { holders: readonly object[] }[] };

    expect(event).toMatchObject({ holder: { weighted: { weight: 7, permits: 10 } }, ahead: 1 });
    expect(other).toHaveProperty("holder.owner");
    expect(other).not.toHaveProperty("holder.weighted");
    expect(locks.map(({ holders }) => "weighted" in (holders[0] ?? {}))).toEqual(
      expect.arrayContaining([true, false]),
    );
    expect((await runCli(["show", `${name}/plain`], settings())).stdout).not.toMatch(/WEIGHT|permits/);
    await Promise.all([hold.release(), plain.release()]);
    expect(await end(waits, next)).toEqual([0, 0]);
  });
});

describe("weights that another client has written badly", () => {
  const SAFE = /^[ -~\n…]*$/;

  test("are shown as none, and reach no terminal", async () => {
    const weights = [
      { weight: "\u001b[2J", permits: 10 },
      { weight: 11, permits: 10 },
      { weight: 1, permits: 1e9 },
      "x",
    ];
    for (const [n, weighted] of weights.entries()) {
      const value = JSON.stringify({ owner: "evil", id: "x", weighted });
      await etcdOf(two).putKey(`evil/1a2${n}`, value);
    }
    const [show, top, json] = await Promise.all([
      runCli(["show", "evil"], settings()),
      runCli(["top", "evil", "--once"], settings()),
      runCli(["show", "evil", "--json"], settings()),
    ]);

    expect([show.code, top.code, json.code]).toEqual([0, 0, 0]);
    expect(show.stdout).toMatch(SAFE);
    expect(`${show.stdout}${top.stdout}`).not.toMatch(/WEIGHT|permits|u001b/);
    expect(json.stdout).not.toContain('"weighted"');
  });
});
