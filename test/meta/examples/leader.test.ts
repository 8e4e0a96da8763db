import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples, type Program } from "../../support/fixtures/examples.js";

interface Replica {
  readonly url: string;
  readonly program: Program;
}

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

const replicas = (examples: Examples) =>
  Promise.all([1, 2, 3].map(() => examples.serve("leader.js"))) as Promise<Replica[]>;
const ready = async ({ url }: Replica) => (await fetch(`${url}/readyz`)).status === 200;
const told = async ({ url }: Replica) => {
  const response = await fetch(`${url}/healthz`);
  return { status: response.status, ...((await response.json()) as { leader: string }) };
};

/** The only replica that is ready. */
async function leaderOf(all: readonly Replica[]): Promise<Replica> {
  let found: Replica[] = [];
  const look = async () => {
    const flags = await Promise.all(all.map(ready));
    return (found = all.filter((_, index) => flags[index])).length;
  };
  await expect.poll(look, { timeout: 20_000 }).toBe(1);
  return found[0]!;
}

const others = (all: readonly Replica[], leader: Replica) => all.filter((each) => each !== leader);

describe("examples/leader.js", { timeout: 60_000 }, () => {
  test("is ready on one replica, healthy on all, and everybody names the same leader", async () => {
    await using examples = new Examples(etcd.endpoints);
    const all = await replicas(examples);

    const leader = await leaderOf(all);
    await leader.program.says("worked under fence");

    const expected = { status: 200, leader: `port ${new URL(leader.url).port}` };
    await expect.poll(() => Promise.all(all.map(told))).toMatchObject([expected, expected, expected]);
  });

  test("on SIGTERM ends in order, and another replica leads without waiting for the TTL", async () => {
    await using own = await startEtcd();
    await using examples = new Examples(own.endpoints, { TTL_SECONDS: "600" });
    const all = await replicas(examples);
    const leader = await leaderOf(all);

    leader.program.signal("SIGTERM");
    const { code, stderr } = await leader.program.ended;

    expect([code, stderr]).toEqual([0, ""]);
    const rest = others(all, leader);
    await leaderOf(rest);
    for (const { program } of rest) program.signal("SIGTERM");
    expect(await Promise.all(rest.map(({ program }) => program.ended))).toMatchObject([
      { code: 0, stderr: "" },
      { code: 0, stderr: "" },
    ]);
  });

  test("after kill -9 of the leader another replica is ready", async () => {
    await using examples = new Examples(etcd.endpoints);
    const all = await replicas(examples);
    const leader = await leaderOf(all);

    leader.program.signal("SIGKILL");
    await leader.program.ended;

    expect(others(all, leader)).toContain(await leaderOf(others(all, leader)));
  });

  test("a leader that was paused for longer than its TTL is not ready in its first answer", async () => {
    await using examples = new Examples(etcd.endpoints);
    const all = await replicas(examples);
    const leader = await leaderOf(all);

    leader.program.signal("SIGSTOP");
    const asked = fetch(`${leader.url}/readyz`);
    const next = await leaderOf(others(all, leader));
    leader.program.signal("SIGCONT");

    expect((await asked).status).toBe(503);
    expect(await ready(next)).toBe(true);
  });
});
