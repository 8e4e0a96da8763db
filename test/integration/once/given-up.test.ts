// A call that may run a slot again, and gives up before its work: the slot is as it was.
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, once, type Cluster, type OnceOptions } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { startGrpcProxy, type GrpcProxy } from "../../support/proxies/grpc-proxy.js";

let etcd: EtcdCluster;
let proxy: GrpcProxy;
let caller: Cluster;
let other: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  caller = connect({ hosts: proxy.endpoint });
  other = connect({ hosts: etcd.member.endpoint });
});
afterAll(async () => {
  await Promise.all([caller, other].map((cluster) => cluster.close({ drainMs: 0 })));
  await proxy.stop();
  await etcd.stop();
});

const KEEP = { result: "keep", fingerprint: "first" } as const;
const base64 = (text: string) => Buffer.from(text).toString("base64");

/** What etcd keeps of the slot: the value without the fence, which may be added, and the lease. */
const kept = async (name: string) => {
  const [first, end] = [`/leasehold/once/${name}//`, `/leasehold/once/${name}/0`].map(base64);
  const { kvs = [] } = (await etcd.member.gateway("/v3/kv/range", { key: first, range_end: end })) as {
    readonly kvs?: readonly { readonly value: string; readonly lease?: string }[];
  };
  return kvs.map(({ value, lease }) => {
    const mark = JSON.parse(Buffer.from(value, "base64").toString()) as object;
    return { ...mark, fence: undefined, lease };
  });
};

/** The claim of a call with `rerun` has been executed, and its answer is on the way, when the call gives up. */
async function giveUp(
  name: string,
  slot: number | string,
  options: OnceOptions,
  before?: () => Promise<unknown>,
) {
  // The session is open, and there is a lease for marks.
  await once(caller, `${name}/other`, slot, () => 1);
  let claims = 0;
  const rule = proxy.rule({
    ...{ path: "/etcdserverpb.KV/Txn", act: "drop-answer", times: 1 },
    // The first one finds the mark, and the second one replaces it.
    when: (request) =>
      request.includes(`/leasehold/once/${name}//`) && request.includes('"started"') && ++claims === 2,
  });
  const stop = new AbortController();
  const signal = options.timeoutMs === undefined ? stop.signal : undefined;
  const work = () => {
    throw new Error("this work must not run");
  };
  const called = once(caller, name, slot, work, { rerun: "if_failed", ...options, signal }).catch(
    (error: unknown) => error,
  );
  await rule.answered();
  await before?.();
  stop.abort(new Error("the client has gone"));
  expect(await called).toMatchObject(
    signal
      ? { message: "the client has gone" }
      : { code: expect.stringMatching(/TIMEOUT|UNAVAILABLE/) as string },
  );
  proxy.remove(rule);
  // The entry leaves after the mark.
  const lock = typeof slot === "number" ? name : `${name}/${slot}`;
  await expect.poll(() => placesOf(etcd.member, lock), { timeout: 10_000 }).toEqual([]);
}

const fails = () => Promise.reject(new Error("no paper"));

test.for(
  ["key", 7].flatMap((slot) =>
    ["failed", "lost"].flatMap((state) =>
      [undefined, 1000].map((timeoutMs) => [slot, state, timeoutMs] as const),
    ),
  ),
)("slot %o, which is %s, after a limit of %o ms", { timeout: 30_000 }, async ([slot, state, timeoutMs]) => {
  const name = `pay/${typeof slot}/${state}/${timeoutMs}`;
  const first = state === "failed" ? fails : (lock: { release(): Promise<void> }) => lock.release();
  await once(other, name, slot, first, KEEP).catch(() => undefined);
  const before = await kept(name);
  const [record] = await once.history(other, name);
  await giveUp(name, slot, { timeoutMs });

  expect(await kept(name)).toEqual(before);
  const [{ fence, ...after } = record!] = await once.history(other, name);
  expect({ ...after, fence }).toEqual(record);
  expect(await once(other, name, slot, () => "ran", KEEP)).toMatchObject({ status: state });
  await expect(once(other, name, slot, () => "ran", { fingerprint: "other" })).rejects.toMatchObject({
    code: "FINGERPRINT_MISMATCH",
  });
  expect(await once(other, name, slot, () => "ran", { rerun: "if_failed" })).toMatchObject({ ran: true });
});

test("counts as lost if the lease of its mark is gone", { timeout: 30_000 }, async () => {
  await once(other, "expires", "key", fails, KEEP).catch(() => undefined);
  const [{ lease } = { lease: "" }] = await kept("expires");
  await giveUp("expires", "key", {}, () => etcd.member.gateway("/v3/lease/revoke", { ID: lease }));

  expect(await once(other, "expires", "key", () => "ran", KEEP)).toMatchObject({ status: "lost" });
});

test("is free again if it was free", { timeout: 30_000 }, async () => {
  await once(caller, "free/other", 7, () => 1);
  const stop = new AbortController();
  const rule = proxy.rule({
    ...{ path: "/etcdserverpb.KV/Txn", act: "drop-answer", times: 1 },
    when: (request) => request.includes("/leasehold/once/free//"),
  });
  const called = once(caller, "free", 7, () => "never", { signal: stop.signal }).catch(
    (error: unknown) => error,
  );
  await rule.answered();
  stop.abort(new Error("the client has gone"));
  expect(await called).toMatchObject({ message: "the client has gone" });
  await expect.poll(() => placesOf(etcd.member, "free"), { timeout: 10_000 }).toEqual([]);

  expect(await once(other, "free", 7, () => "ran")).toMatchObject({ ran: true });
});
