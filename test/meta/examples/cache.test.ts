import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { Upstream } from "../../support/proxies/upstream.js";

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

const rate = async (url: string, currency: string, signal?: AbortSignal) => {
  const response = await fetch(`${url}/rates/${currency}`, { ...(signal && { signal }) });
  return { status: response.status, text: await response.text() };
};

describe("examples/cache.js", { timeout: 60_000 }, () => {
  test("asks the source once for 60 requests of two replicas, and not again while the answer is fresh", async () => {
    await using source = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { SOURCE_URL: source.url });
    const [a, b] = await Promise.all([examples.serve("cache.js"), examples.serve("cache.js")]);

    const answers = Promise.all(Array.from({ length: 60 }, (_, n) => rate(n % 2 ? a.url : b.url, "EUR")));
    const asked = await source.next();
    const other = rate(a.url, "JPY");
    (await source.next()).answer("160");
    expect(await other).toEqual({ status: 200, text: "160" });
    asked.answer("1.1");

    for (const answer of await answers) expect(answer).toEqual({ status: 200, text: "1.1" });
    expect(await rate(b.url, "EUR")).toEqual({ status: 200, text: "1.1" });
    expect(source.asked.map(({ path }) => path)).toEqual(["/EUR", "/JPY"]);
  });

  test("gives a stale answer at once, while one request asks anew", async () => {
    await using source = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { SOURCE_URL: source.url, FRESH_MS: "2000" });
    const [a, b] = await Promise.all([examples.serve("cache.js"), examples.serve("cache.js")]);
    const first = rate(a.url, "CHF");
    (await source.next()).answer("old");
    await first;

    // Until it is no longer fresh, nobody asks.
    const askedAgain = source.next();
    let isAsked = false;
    void askedAgain.then(() => (isAsked = true));
    while (!isAsked) expect(await rate(b.url, "CHF")).toEqual({ status: 200, text: "old" });
    const during = await Promise.all([a, b, a, b].map(({ url }) => rate(url, "CHF")));
    expect(during.map(({ text }) => text)).toEqual(["old", "old", "old", "old"]);
    expect(source.asked).toHaveLength(2);
    (await askedAgain).answer("new");
    await expect.poll(async () => (await rate(a.url, "CHF")).text).toBe("new");
  });

  test("answers 502 when the source fails, to all that have waited, and asks again for the next request", async () => {
    await using source = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { SOURCE_URL: source.url });
    const [a, b] = await Promise.all([examples.serve("cache.js"), examples.serve("cache.js")]);
    const answers = Promise.all([rate(a.url, "GBP"), rate(b.url, "GBP")]);
    await source.next();

    const asks = source.asked.length;
    await source[Symbol.asyncDispose]();
    expect((await answers).map(({ status }) => status)).toEqual([502, 502]);
    expect(asks).toBe(1);
    expect((await rate(a.url, "GBP")).status).toBe(502);
  });

  test("goes on for the others when the client of the first request goes away", async () => {
    await using source = await Upstream.start();
    await using examples = new Examples(etcd.endpoints, { SOURCE_URL: source.url });
    const [a, b] = await Promise.all([examples.serve("cache.js"), examples.serve("cache.js")]);
    const client = new AbortController();
    const left = rate(a.url, "SEK", client.signal).catch(() => "gone");
    const asked = await source.next();
    client.abort();
    expect(await left).toBe("gone");
    const second = rate(b.url, "SEK");
    asked.answer("11");

    expect(await second).toEqual({ status: 200, text: "11" });
    expect(source.asked).toHaveLength(1);
  });

  test("answers 404 to everything else", async () => {
    await using examples = new Examples(etcd.endpoints);
    const { url } = await examples.serve("cache.js");

    expect((await rate(url, "eur")).status).toBe(404);
  });
});
