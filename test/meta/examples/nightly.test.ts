import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples, type Program } from "../../support/fixtures/examples.js";
import { Upstream } from "../../support/proxies/upstream.js";

/** The command of the cron job: it sends a request, and ends when it gets an answer. */
const COMMAND = "fetch(process.argv[1]).then((response) => response.text()).then(console.log)";

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

/** A replica whose clock says that it is this night. */
function replica(examples: Examples, job: string, source: Upstream, night = "2026-03-01"): Program {
  const clock = `Date.prototype.toLocaleDateString = () => "${night}"`;
  const also = process.env["NODE_OPTIONS"] ?? "";
  const env = { NODE_OPTIONS: `${also} --import=data:text/javascript,${encodeURIComponent(clock)}` };
  return examples.start("nightly.js", { args: [job, process.execPath, "-e", COMMAND, source.url], env });
}

describe("examples/nightly.js", { timeout: 60_000 }, () => {
  test("runs the command once a night, however many replicas start it and however late", async () => {
    await using source = await Upstream.start();
    await using examples = new Examples(etcd.endpoints);

    const replicas = [1, 2, 3].map(() => replica(examples, "once", source));
    (await source.next()).answer("backed up");
    const ended = await Promise.all(replicas.map((each) => each.ended));
    const late = await replica(examples, "once", source).ended;

    expect(ended.map(({ code, stderr }) => [code, stderr])).toEqual([1, 2, 3].map(() => [0, ""]));
    expect(ended.map(({ stdout }) => stdout).sort()).toEqual([
      "backed up\nonce is done for 2026-03-01\n",
      "once was done for 2026-03-01\n",
      "once was done for 2026-03-01\n",
    ]);
    expect(late.stdout).toBe("once was done for 2026-03-01\n");
    expect(source.asked).toHaveLength(1);

    const next = replica(examples, "once", source, "2026-03-02");
    (await source.next()).answer("again");
    expect((await next.ended).stdout).toContain("once is done for 2026-03-02");
    const yesterday = await replica(examples, "once", source, "2026-03-01").ended;
    expect(yesterday.stdout).toBe("once was done for 2026-03-02\n");
    expect(source.asked).toHaveLength(2);
  });

  test("runs on another replica when the first one is killed in the middle", async () => {
    await using source = await Upstream.start();
    await using examples = new Examples(etcd.endpoints);
    const first = replica(examples, "killed", source);
    const before = await source.next();
    const second = replica(examples, "killed", source);

    first.signal("SIGKILL");
    (await source.next()).answer("backed up");
    const { code, stdout } = await second.ended;
    // a command outlives its replica
    before.answer("orphan");

    expect([code, stdout]).toEqual([0, "backed up\nkilled is done for 2026-03-01\n"]);
  });

  test("runs on another replica when the command fails", async () => {
    await using source = await Upstream.start();
    await using examples = new Examples(etcd.endpoints);
    const failing = examples.start("nightly.js", {
      args: ["failing", process.execPath, "-e", "process.exit(3)"],
    });

    const { code, stderr } = await failing.ended;
    const second = replica(examples, "failing", source);
    (await source.next()).answer("backed up");

    expect(code).toBe(1);
    expect(stderr).toContain("ended with 3");
    expect((await second.ended).stdout).toContain("failing is done");
  });

  test("ends the command of a replica that was paused for longer than its TTL", async () => {
    await using source = await Upstream.start();
    await using examples = new Examples(etcd.endpoints);
    const paused = replica(examples, "paused", source);
    const before = await source.next();
    paused.signal("SIGSTOP");

    const second = replica(examples, "paused", source);
    (await source.next()).answer("backed up");
    await second.ended;
    paused.signal("SIGCONT");
    await before.gone;
    const { code, stdout, stderr } = await paused.ended;

    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toContain("LockLostError");
  });
});
