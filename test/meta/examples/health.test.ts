import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";

let etcd: EtcdCluster;

beforeAll(() => buildPackage(), 150_000);
beforeEach(async () => void (etcd = await startEtcd()), 60_000);
afterEach(() => etcd?.stop());

const statusOf = async (url: string) => (await fetch(url)).status;
const statuses = (url: string) =>
  Promise.all([statusOf(`${url}/readyz`), statusOf(`${url}/livez`)]).then(([ready, live]) => ({
    ready,
    live,
  }));

describe("examples/health.js", { timeout: 90_000 }, () => {
  test("is not ready during an outage of etcd, ready after it, and live all the time", async () => {
    await using examples = new Examples(etcd.endpoints);
    const { url, program } = await examples.serve("health.js");
    await program.says("working under fence");
    await expect.poll(() => statuses(url)).toEqual({ ready: 200, live: 200 });
    const seen: number[] = [];
    const look = async () => {
      const { ready, live } = await statuses(url);
      seen.push(live);
      return ready;
    };

    etcd.member.pause();
    await expect.poll(look, { timeout: 30_000 }).toBe(503);
    // The session that is renewed no more is lost.
    const state = async () => ((await (await fetch(`${url}/readyz`)).json()) as { state: string }).state;
    await expect.poll(state, { timeout: 30_000 }).toBe("lost");
    expect(await look()).toBe(503);
    etcd.member.resume();
    await expect.poll(look, { timeout: 30_000 }).toBe(200);

    expect(new Set(seen)).toEqual(new Set([200]));
    program.signal("SIGTERM");
    expect((await program.ended).code).toBe(0);
  });

  test("is no longer live when the work of a lost leadership ignores its signal", async () => {
    await using examples = new Examples(etcd.endpoints, { STUBBORN: "1", GRACE_MS: "500" });
    const { url, program } = await examples.serve("health.js");
    await program.says("working under fence");
    expect(await statuses(url)).toEqual({ ready: 200, live: 200 });

    etcd.member.pause();
    await expect.poll(() => statuses(url), { timeout: 30_000 }).toEqual({ ready: 503, live: 503 });
    etcd.member.resume();

    await expect.poll(() => statuses(url), { timeout: 30_000 }).toEqual({ ready: 200, live: 503 });
  });
});
