// forceRelease() removes exactly the entry that it was given, whoever has it.
import { describe, expect, test } from "vitest";
import {
  connect,
  type Contender,
  forceRelease,
  inspect,
  LockLostError,
  type LockTimeoutError,
  Mutex,
} from "../../../src/index.js";
import { abortOf } from "../../support/clients/session-client.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { givesBack } from "../../support/clients/request-shape.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);

const holderOf = async (name: string): Promise<Contender> => {
  const { holders } = await inspect(two.cluster, name);
  if (!holders[0]) throw new Error(`nobody holds ${name}`);
  return holders[0];
};

describe("forceRelease()", () => {
  test("ends the hold, notifies its holder, and the next waiter holds", async () => {
    const name = "force/holder";
    const lock = await new Mutex(two.holder, name).lock();
    const next = new Mutex(two.session, name).lock();
    await two.queued(name, 2);
    const holder = await holderOf(name);

    expect(await forceRelease(two.cluster, holder)).toBe(holder);

    expect(await abortOf(lock.signal)).toBeInstanceOf(LockLostError);
    expect(lock.signal.reason).toMatchObject({ loss: "deleted" });
    const granted = await next;
    expect(await forceRelease(two.cluster, holder)).toBeUndefined();
    expect(granted.held).toBe(true);
    await granted.release();
  });

  test("removes a waiter of this library only for the moment: it joins again, at the end", async () => {
    const name = "force/waiter";
    const lock = await new Mutex(two.holder, name).lock();
    const waiting = new Mutex(two.session, name).lock();
    await two.queued(name, 2);
    const [waiter] = (await inspect(two.cluster, name)).waiters;

    expect(await forceRelease(two.cluster, waiter!)).toBe(waiter);

    await expect
      .poll(async () => (await inspect(two.cluster, name)).waiters[0]?.revision)
      .toBeGreaterThan(waiter!.revision);
    await lock.release();
    await (await waiting).release();
  });

  test("never removes a later entry with the same key", async () => {
    const name = "force/later";
    const mutex = new Mutex(two.holder, name);
    const lock = await mutex.lock();
    const earlier = await holderOf(name);
    await lock.release();
    const later = await mutex.lock();

    expect(later.key).toBe(earlier.key);
    expect(await forceRelease(two.cluster, earlier)).toBeUndefined();

    expect(await two.places(name)).toMatchObject([{ revision: later.fence }]);
    await later.release();
  });

  test("removes the entry of etcdctl lock, and a key that is no text", async () => {
    const name = "force/foreign";
    await using etcdctl = new EtcdctlLock(two.etcd, name);
    await etcdctl.held;
    expect(await forceRelease(two.cluster, await holderOf(name))).toBeDefined();
    const key = Buffer.concat([Buffer.from(`${name}/`), Buffer.of(0xff)]).toString("base64");
    await two.etcd.member.gateway("/v3/kv/put", { key });

    expect(await forceRelease(two.cluster, await holderOf(name))).toBeDefined();

    expect(await two.places(name)).toEqual([]);
  });

  test("removes a key that is no text, as a LockTimeoutError has reported it", async () => {
    const name = "force/timeout";
    const key = Buffer.concat([Buffer.from(`${name}/`), Buffer.of(0xff)]).toString("base64");
    await two.etcd.member.gateway("/v3/kv/put", { key });
    const error = await reasonOf(new Mutex(two.cluster, name).lock({ timeoutMs: 2000 }));

    expect(await forceRelease(two.cluster, (error as LockTimeoutError).holder!)).toBeDefined();

    expect(await two.places(name)).toEqual([]);
  });

  test("does not say that the key was gone if the lost answer to an earlier attempt may have said otherwise", async () => {
    const name = "force/doubt";
    await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
    const lock = await new Mutex(two.holder, name).lock();
    const holder = await holderOf(name);
    const rule = proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "drop-answer", when: givesBack, times: 1 });

    expect(await forceRelease(cluster, holder)).toBe(holder);

    expect(rule.hits).toBe(1);
    expect(await two.places(name)).toEqual([]);
    await reasonOf(lock.release());
  });

  test.each([
    ["nothing", undefined],
    ["a key outside the name", { name: "a", key: "b/6a1f", revision: 1n }],
    ["a revision that came as JSON", { name: "a", key: "a/6a1f", revision: "1" }],
    ["the revision 0, which would fit a key that is not there", { name: "a", key: "a/6a1f", revision: 0n }],
    ["a revision that etcd takes for 0", { name: "a", key: "a/6a1f", revision: 2n ** 64n, leaseId: 1n }],
    ["a lease that came as JSON", { name: "a", key: "a/6a1f", revision: 1n, leaseId: "1" }],
  ])("rejects %s", async (_, contender) => {
    const reason = await reasonOf(forceRelease(two.cluster, contender as never));

    expect(reason).toSatisfy((error) => error instanceof TypeError || error instanceof RangeError);
  });
});
