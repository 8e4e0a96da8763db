import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { overtaken, fenceIn } from "../../support/fixtures/overtaken.js";

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

describe("examples/fenced-http.js", () => {
  test("a holder that was paused for longer than its TTL cannot overwrite the document of the next one", async () => {
    await using examples = new Examples(etcd.endpoints);
    const { url } = await examples.serve("fenced-http-server.js");
    const document = `${url}/rates/EUR`;

    const { stale, next } = await overtaken(examples, "fenced-http.js", { RESOURCE_URL: document });

    expect([next.code, next.stderr]).toEqual([0, ""]);
    expect(stale.code).toBe(1);
    expect(stale.stderr).toMatch(/EUR not written: fence \d+, turn 1 is stale/);
    expect(fenceIn(stale.stderr)).toBeLessThan(fenceIn(next.stdout));
    expect(await (await fetch(document)).text()).toBe("1.25");
  }, 60_000);

  test("its server wants a token with every write, and keeps what it refuses away from the document", async () => {
    await using examples = new Examples(etcd.endpoints);
    const { url } = await examples.serve("fenced-http-server.js");
    const put = async (token: string | undefined, body: string, path = "/a") => {
      const headers = token === undefined ? {} : { "Fencing-Token": token };
      return (await fetch(`${url}${path}`, { method: "PUT", headers, body })).status;
    };

    // 2^53 and its neighbor are equal to a server that parses tokens as doubles
    expect(await put("9007199254740993", "newest")).toBe(204);
    expect(await put("9007199254740992", "older")).toBe(412);
    expect(await put("1", "another document", "/b")).toBe(204);
    expect(await put("9007199254740993.2", "second turn")).toBe(204);
    expect([await put("9007199254740993.1", "late"), await put("9007199254740993", "late")]).toEqual([
      412, 412,
    ]);
    expect(await put("9007199254740993.2", "newest")).toBe(204);
    expect(await put("7.", "no turn")).toBe(428);
    expect(await put(undefined, "no token")).toBe(428);
    expect(await put("-1", "no number")).toBe(428);
    expect(await put("", "empty")).toBe(428);

    expect(await (await fetch(`${url}/a`)).text()).toBe("newest");
  });
});
