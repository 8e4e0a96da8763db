// The real client with a password, on a simulated etcd that forgets tokens.
import { describe, expect, it } from "vitest";
import { Mutex, Session } from "../../../src/index.js";
import { SimEtcd } from "../../../src/testing/memory/etcd.js";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";
import { Kernel } from "../../sim/kernel/kernel.js";
import { SimNode } from "../../sim/node/sim-node.js";

const TTL_SECONDS = 5;
const MINUTE_MS = 60_000;
const USER = { username: "worker", password: "secret" };
const AUTH = {
  users: { worker: { password: USER.password, roles: ["jobs"] } },
  roles: { jobs: { readwrite: ["jobs/"] } },
} as const;

function setUp(version: SimVersion, ttlMs = 300_000) {
  const kernel = new Kernel("auth client");
  const auth = { ...AUTH, tokens: { kind: "simple", ttlMs } } as const;
  const etcd = new SimEtcd({ scheduler: kernel, random: kernel.random.fork("etcd"), version, auth });
  const node = (name: string, password = USER.password): SimNode =>
    new SimNode({
      ...{ name, scheduler: kernel, random: kernel.random, servers: etcd.members },
      options: { auth: { ...USER, password }, session: { ttlSeconds: TTL_SECONDS } },
    });
  /** Runs the simulation until `promise` has settled. */
  const settle = async <T>(promise: Promise<T>): Promise<T> => {
    let over = false;
    const end = (): void => void (over = true);
    promise.then(end, end);
    await kernel.run(() => over, MINUTE_MS);
    return promise;
  };
  return { kernel, etcd, node, settle };
}

describe.each(["3.4", "3.5", "3.6", "3.7"] as const)("on etcd %s, a client with a password", (version) => {
  it("holds its lock on, and waiters are served, while etcd forgets all tokens again and again", async () => {
    const { kernel, etcd, node, settle } = setUp(version);
    const [holder, other] = [node("holder").cluster, node("other").cluster];
    const lock = await settle(new Mutex(holder, "jobs/a").lock());
    const next = new Mutex(other, "jobs/a").lock();

    for (let n = 0; n < 20; n++) {
      await kernel.elapse(1700);
      etcd.auth.forgetTokens();
    }

    expect(lock.held).toBe(true);
    await settle(lock.release());
    const second = await settle(next);
    expect(second.fence).toBeGreaterThan(lock.fence);
    await settle(second.release());
    expect(etcd.store.keys).toEqual([]);
  });

  it("keeps an idle session whose token expires", async () => {
    const { kernel, node, settle } = setUp(version, 1000);
    const session = await settle(Session.open(node("n").cluster, { ttlSeconds: TTL_SECONDS }));
    await kernel.elapse(MINUTE_MS);
    expect(session.state).toBe("live");
  });

  it("is refused a lock outside of its permissions, and any lock with a wrong password or a used-up quota", async () => {
    const { etcd, node, settle } = setUp(version);
    const reasonOf = (name: string, password?: string): Promise<unknown> =>
      settle(new Mutex(node(`${name} ${password}`, password).cluster, name).lock()).catch(
        (error: unknown) => error,
      );

    expect(await reasonOf("other/a")).toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
    expect(await reasonOf("jobs/a", "wrong")).toMatchObject({
      code: "ETCD_REFUSED",
      reason: "unauthenticated",
    });
    etcd.quota.fill();
    expect(await reasonOf("jobs/a")).toMatchObject({ code: "ETCD_REFUSED", reason: "quota" });
  });
});
