import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { placesOf } from "../../support/clients/server-view.js";
import { Upstream } from "../../support/proxies/upstream.js";

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

const order = (url: string, user: string, signal?: AbortSignal) =>
  fetch(`${url}/orders/${user}`, { method: "POST", ...(signal && { signal }) });
const waiting = async (user: string) => (await placesOf(etcd.member, `orders/${user}`)).length;

describe("examples/per-user.js", { timeout: 60_000 }, () => {
  test("serves one request of a user at a time, across replicas, and other users beside", async () => {
    await using backend = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { BACKEND_URL: backend.url });
    const [a, b] = await Promise.all([examples.serve("per-user.js"), examples.serve("per-user.js")]);

    const first = order(a.url, "ann");
    const atWork = await backend.next();
    const second = order(b.url, "ann");
    await expect.poll(() => waiting("ann")).toBe(2);
    const other = order(b.url, "bob");
    const beside = await backend.next();
    beside.answer("order of bob");
    expect(beside.path).toBe("/bob");
    expect(await (await other).text()).toBe("order of bob");
    expect(backend.asked).toHaveLength(2);

    atWork.answer("first");
    (await backend.next()).answer("second");

    expect(await (await first).text()).toBe("first");
    expect(await (await second).text()).toBe("second");
    const [token = 0, , later = 0] = backend.asked.map(({ headers }) => Number(headers["fencing-token"]));
    expect(later).toBeGreaterThan(token);
  });

  test("answers 429 with Retry-After when the wait takes too long, and leaves nothing in the queue", async () => {
    await using backend = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { BACKEND_URL: backend.url });
    const { url } = await examples.serve("per-user.js");
    const first = order(url, "cid");
    const atWork = await backend.next();

    const { status, headers } = await order(url, "cid");

    expect([status, headers.get("retry-after")]).toEqual([429, "1"]);
    await expect.poll(() => waiting("cid")).toBe(1);
    atWork.answer("done");
    expect((await first).status).toBe(200);
  });

  test("ends the wait of a client that goes away", async () => {
    await using backend = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { BACKEND_URL: backend.url });
    const { url } = await examples.serve("per-user.js");
    const first = order(url, "dan");
    const atWork = await backend.next();
    const client = new AbortController();
    const second = order(url, "dan", client.signal).catch(() => "gone");
    await expect.poll(() => waiting("dan")).toBe(2);

    client.abort();

    expect(await second).toBe("gone");
    await expect.poll(() => waiting("dan")).toBe(1);
    atWork.answer("done");
    expect((await first).status).toBe(200);
    expect(backend.asked).toHaveLength(1);
  });

  test("answers 503 with Retry-After while there is no etcd", async () => {
    await using examples = new Examples(["http://127.0.0.1:9"]);
    const { url } = await examples.serve("per-user.js");

    const { status, headers } = await order(url, "eve");

    expect([status, headers.get("retry-after")]).toEqual([503, "1"]);
  });

  test("answers 404 to everything else", async () => {
    await using examples = new Examples(etcd.endpoints);
    const { url } = await examples.serve("per-user.js");

    expect((await order(url, "a/b")).status).toBe(404);
    expect((await order(url, "%2F")).status).toBe(404);
  });
});
