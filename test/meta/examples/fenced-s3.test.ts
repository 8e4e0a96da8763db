import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { fenceIn, overtaken } from "../../support/fixtures/overtaken.js";
import { ToyS3 } from "../../support/servers/toy-s3.js";

const SOURCE = readFileSync(new URL("../../../examples/fenced-s3.js", import.meta.url), "utf8");
/** The function of the example, to which docs/fencing.md refers. */
const WRITE = /^async function writeFenced[^]*?^}$/m.exec(SOURCE)?.[0] ?? "";
const { writeFenced } = (await import(
  /* @vite-ignore */ `data:text/javascript,${encodeURIComponent(`export ${WRITE}`)}`
)) as { writeFenced: (url: string, fence: bigint, value: string) => Promise<void> };

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

const contentOf = async (url: string): Promise<unknown> => (await fetch(url)).json();

describe("examples/fenced-s3.js", () => {
  test("a holder that was paused for longer than its TTL cannot overwrite the object of the next one", async () => {
    await using store = await ToyS3.start();
    await using examples = new Examples(etcd.endpoints);
    const url = store.url("bucket/rates/EUR.json");

    const { stale, next } = await overtaken(examples, "fenced-s3.js", { OBJECT_URL: url });

    expect([next.code, next.stderr]).toEqual([0, ""]);
    expect(stale.code).toBe(1);
    expect(stale.stderr).toMatch(/EUR not written: fence \d+ is stale/);
    expect(fenceIn(stale.stderr)).toBeLessThan(fenceIn(next.stdout));
    expect(await contentOf(url)).toEqual({ fence: fenceIn(next.stdout).toString(), value: "1.25" });
  }, 60_000);

  test("a newer holder that writes between the read and the write of an older one is not overwritten", async () => {
    await using store = await ToyS3.start();
    const url = store.url("bucket/a");
    await writeFenced(url, 5n, "old");
    store.beforeWrite = () => writeFenced(url, 9n, "newer");

    await expect(writeFenced(url, 7n, "stale")).rejects.toThrow("fence 7 is stale");

    expect(await contentOf(url)).toEqual({ fence: "9", value: "newer" });
    expect(store.statuses).toEqual([200, 200, 412]);
  });

  test("nor one that writes the same value: the fence is part of the content, so the ETag differs", async () => {
    await using store = await ToyS3.start();
    const url = store.url("bucket/a");
    await writeFenced(url, 5n, "same");
    store.beforeWrite = () => writeFenced(url, 9n, "same");

    await expect(writeFenced(url, 7n, "stale")).rejects.toThrow("fence 7 is stale");
    expect(await contentOf(url)).toEqual({ fence: "9", value: "same" });
  });

  test("a fence in the metadata would not do: the ETag does not depend on it", async () => {
    await using store = await ToyS3.start();
    const url = store.url("bucket/a");
    const put = (fence: string, body: string, condition = {}) =>
      fetch(url, { method: "PUT", headers: { "x-amz-meta-fence": fence, ...condition }, body });
    await put("5", "same");
    const version = (await fetch(url)).headers.get("ETag") ?? "";
    await put("9", "same");

    const { status } = await put("7", "stale", { "If-Match": version });

    expect([status, await (await fetch(url)).text()]).toEqual([200, "stale"]);
  });

  test("of two holders that both create the object, the later one wins", async () => {
    await using store = await ToyS3.start();
    const url = store.url("bucket/a");
    store.beforeWrite = () => writeFenced(url, 9n, "newer");

    await expect(writeFenced(url, 7n, "stale")).rejects.toThrow("fence 7 is stale");
    expect(await contentOf(url)).toEqual({ fence: "9", value: "newer" });
  });

  test("goes on after a conflict, after a deletion, with an equal fence and beyond 2^53", async () => {
    await using store = await ToyS3.start();
    const url = store.url("bucket/a");
    const fence = 2n ** 53n;

    await writeFenced(url, fence, "first");
    store.conflict = true;
    await writeFenced(url, fence, "again");
    store.beforeWrite = () => fetch(url, { method: "DELETE" });
    await writeFenced(url, fence + 1n, "next");

    expect(await contentOf(url)).toEqual({ fence: "9007199254740993", value: "next" });
    expect(store.statuses).toEqual([200, 409, 200, 404, 200]);
    await expect(writeFenced(url, fence, "older")).rejects.toThrow("is stale");
  });
});
