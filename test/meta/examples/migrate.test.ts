import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

const SERVING = "version 3: serving\n";

async function shop(): Promise<string[]> {
  const { stdout } = await etcd.etcdctl(["get", "--prefix", "shop/"]);
  return stdout.trim().split("\n");
}

describe("examples/migrate.js", { timeout: 60_000 }, () => {
  test("migrates once, while the other replicas wait until it is done", async () => {
    await using examples = new Examples(etcd.endpoints);

    const replicas = [1, 2, 3, 4].map(() => examples.start("migrate.js"));
    const ended = await Promise.all(replicas.map((each) => each.ended));

    expect(ended.map(({ code, stderr }) => [code, stderr])).toEqual([1, 2, 3, 4].map(() => [0, ""]));
    const [migrated, ...others] = ended.map(({ stdout }) => stdout).sort();
    expect(migrated).toBe(`step 1 done\nstep 2 done\nstep 3 done\n${SERVING}`);
    expect(others).toEqual([SERVING, SERVING, SERVING]);
    const data = ["shop/currencies", "EUR,CHF", "shop/limit", "100", "shop/region", "eu"];
    expect(await shop()).toEqual([...data, "shop/version", "3"]);
  });

  test("goes on behind the last step that was done", async () => {
    await using examples = new Examples(etcd.endpoints);
    await etcd.etcdctl(["put", "shop/version", "2"]);

    const { code, stdout } = await examples.start("migrate.js").ended;

    expect([code, stdout]).toEqual([0, `step 3 done\n${SERVING}`]);
  });
});
