import { existsSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";

const NAME = "gateway/primary";
/** No lease expires meanwhile. */
const LONG = "600";

let etcd: EtcdCluster;
let folder: string;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
  folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-restart-"));
}, 150_000);
// a process killed at the end of a test leaves its place for a TTL
beforeEach(async () => void (await etcd.etcdctl(["del", "--prefix", "gateway/"])));
afterAll(async () => {
  await etcd?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const fences = async () => (await placesOf(etcd.member, NAME)).map(({ revision }) => revision);
const ticketOf = (test: string) => path.join(folder, test);

/** Starts it, waits until it holds, ends it by SIGTERM, and returns its fence. */
async function holdAndLeave(examples: Examples): Promise<bigint> {
  const program = examples.start("restart.js");
  await program.says("holding");
  const [fence = 0n] = await fences();
  program.signal("SIGTERM");
  const { code, stdout, stderr } = await program.ended;
  expect([code, stdout, stderr]).toEqual([0, `holding with fence ${fence}\n`, ""]);
  return fence;
}

describe("examples/restart.js", { timeout: 60_000 }, () => {
  test("the next process goes on with the same fence, restart after restart, although another one waits", async () => {
    const TICKET = ticketOf("same");
    await using rivals = connect({ hosts: etcd.endpoints });
    await using examples = new Examples(etcd.endpoints, { TTL_SECONDS: LONG, TICKET });
    const first = examples.start("restart.js");
    await first.says("holding");
    let turn = false;
    const waiting = new Mutex(rivals, NAME).lock().finally(() => (turn = true));
    await expect.poll(fences).toHaveLength(2);
    const [fence, rival] = await fences();
    first.signal("SIGTERM");
    expect((await first.ended).code).toBe(0);

    expect(await holdAndLeave(examples)).toBe(fence);
    const third = examples.start("restart.js");
    await third.says(`holding with fence ${fence}\n`);

    expect([turn, await fences(), existsSync(TICKET)]).toEqual([false, [fence, rival], false]);
    third.signal("SIGKILL");
    await etcd.etcdctl(["del", "--prefix", `${NAME}/`]);
    // A waiter whose entry was deleted joins again.
    await (await waiting).release();
  });

  test("of two next processes, one has the lock, and the other waits behind it", async () => {
    await using examples = new Examples(etcd.endpoints, { TTL_SECONDS: LONG, TICKET: ticketOf("two") });
    const fence = await holdAndLeave(examples);

    const both = [examples.start("restart.js"), examples.start("restart.js")];
    await Promise.any(both.map((program) => program.says("holding")));
    await expect.poll(fences).toEqual([fence, expect.any(BigInt)]);
    for (const program of both) program.signal("SIGKILL");

    const printed = (await Promise.all(both.map(({ ended }) => ended))).map(({ stdout }) => stdout);
    expect(printed.sort()).toEqual(["", `holding with fence ${fence}\n`]);
  });

  test("after a restart that takes longer than the TTL, the waiter has been served, and the fence rises", async () => {
    const TICKET = ticketOf("late");
    await using rivals = connect({ hosts: etcd.endpoints });
    await using examples = new Examples(etcd.endpoints, { TTL_SECONDS: "2", TICKET });
    const fence = await holdAndLeave(examples);
    const between = await new Mutex(rivals, NAME).lock();

    const late = examples.start("restart.js");
    await expect.poll(fences).toHaveLength(2);
    expect([existsSync(TICKET), between.fence > fence]).toEqual([false, true]);
    await between.release();
    await late.says("holding");

    expect((await fences())[0]).toBeGreaterThan(between.fence);
  });

  test("on SIGTERM while it waits leaves the queue, and no ticket", async () => {
    const TICKET = ticketOf("waits");
    await using rivals = connect({ hosts: etcd.endpoints });
    await using examples = new Examples(etcd.endpoints, { TTL_SECONDS: LONG, TICKET });
    const holder = await new Mutex(rivals, NAME).lock();
    const program = examples.start("restart.js");
    await expect.poll(fences).toHaveLength(2);

    program.signal("SIGTERM");
    const { code, stdout, stderr } = await program.ended;

    expect([code, stdout, stderr]).toEqual([0, "", ""]);
    expect([await fences(), existsSync(TICKET)]).toEqual([[holder.fence], false]);
    await holder.release();
  });
});
