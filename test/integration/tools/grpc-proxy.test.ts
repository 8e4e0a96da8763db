import { once } from "node:events";
import http2 from "node:http2";
import { noop } from "cockatiel";
import { Etcd3 } from "etcd3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";

const PUT = "/etcdserverpb.KV/Put";
const TXN = "/etcdserverpb.KV/Txn";

describe("the gRPC proxy", () => {
  let etcd: EtcdCluster;
  let direct: Etcd3;

  beforeAll(async () => {
    etcd = await startEtcd();
    direct = connectTo(etcd.member.endpoint);
  });
  afterAll(async () => {
    direct.close();
    await etcd.stop();
  });

  const startProxy = () => startGrpcProxy({ port: etcd.member.clientPort });
  const connectTo = (endpoint: string, timeoutMs = 5_000) =>
    new Etcd3({
      hosts: endpoint,
      defaultCallOptions: (context) => (context.isStream ? {} : { deadline: Date.now() + timeoutMs }),
      faultHandling: { global: noop, host: () => noop },
      grpcOptions: { "grpc.use_local_subchannel_pool": 1 },
    });

  test("passes unary calls, streams and refusals on, and counts the calls by path", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint);

    const watcher = await client.watch().key("through").create();
    const changed = new Promise((resolve) =>
      watcher.once("put", (kv: { value: Buffer }) => resolve(kv.value.toString())),
    );
    const lease = client.lease(5, { autoKeepAlive: false });
    await lease.grant();
    await lease.keepaliveOnce();
    await lease.put("through").value("1");

    expect(await changed).toBe("1");
    await expect(client.put("x").value("").lease("12345").exec()).rejects.toThrow("lease not found");
    expect(proxy.count(PUT)).toBe(2);
    expect(proxy.count("/etcdserverpb.Watch/Watch")).toBe(1);
    expect(proxy.count("/etcdserverpb.Lease/LeaseKeepAlive")).toBe(1);
    await watcher.cancel();
    await lease.revoke();
    client.close();
  });

  test("can drop the answer of a request that etcd applied", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint, 300);
    const rule = proxy.rule({
      path: PUT,
      act: "drop-answer",
      when: (request) => request.includes("dropped"),
    });

    await client.put("kept").value("1");
    const put = client.put("dropped").value("1").exec();
    await Promise.all([rule.answered(), expect(put).rejects.toThrow("Deadline")]);

    expect(await direct.get("dropped")).toBe("1");
    expect(rule.hits).toBe(1);
    client.close();
  });

  test("can cut the connection in place of an answer", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint);
    proxy.rule({ path: PUT, act: "cut-answer", times: 1 });

    await expect(client.put("cut").value("1").exec()).rejects.toThrow();
    await client.put("next").value("1");

    expect(await direct.get("cut")).toBe("1");
    client.close();
  });

  test("names the last call that etcd got when it says goodbye, not the one whose answer it drops", async () => {
    await using proxy = await startProxy();
    proxy.rule({ path: PUT, act: "goaway", when: (request) => request.includes("first") });
    const session = http2.connect(proxy.endpoint);
    const goodbye = once(session, "goaway");
    const open = () =>
      session
        .request({ ":method": "POST", ":path": PUT, "content-type": "application/grpc", te: "trailers" })
        .on("error", () => {});

    const [first, second] = [open(), open()];
    second.end(putRequest("second"));
    await once(second.resume(), "end");
    first.end(putRequest("first"));
    const [, lastId] = (await goodbye) as [number, number];

    expect(lastId).toBe(second.id);
    expect(await direct.get("second")).toBe("");
  });

  test("can reset a call in place of its answer", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint);
    proxy.rule({ path: PUT, act: "calm", times: 1 });

    // grpc-js maps ENHANCE_YOUR_CALM to RESOURCE_EXHAUSTED, although etcd has applied the request.
    await expect(client.put("calm").value("1").exec()).rejects.toThrow(
      "RESOURCE_EXHAUSTED: Bandwidth exhausted",
    );

    expect(await direct.get("calm")).toBe("1");
    client.close();
  });

  test("can refuse a request in etcd's place", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint);
    const status = { code: 8, details: "etcdserver: too many requests" };
    proxy.rule({ path: PUT, act: "refuse", status, times: 1 });

    await expect(client.put("refused").value("1").exec()).rejects.toThrow("etcdserver: too many requests");
    await client.put("accepted").value("1");

    expect(await direct.get("refused")).toBeNull();
    client.close();
  });

  test("keeps a request back until it is released, though its caller has given up and gone", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint, 200);
    const rule = proxy.rule({ path: PUT, act: "hold" });

    const put = client.put("late").value("1").exec();
    await rule.hit();
    await expect(put).rejects.toThrow("Deadline");
    client.close();
    expect(await direct.get("late")).toBeNull();
    rule.release();
    await rule.answered();

    expect(await direct.get("late")).toBe("1");
  });

  test("can drop or delay a request", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint, 600);
    proxy.rule({ path: PUT, act: "drop-request", when: (_, n) => n === 1 });
    proxy.rule({ path: PUT, act: "delay", ms: 150 });

    await expect(client.put("lost").value("1").exec()).rejects.toThrow("Deadline");
    const start = performance.now();
    await client.put("delayed").value("1");

    expect(performance.now() - start).toBeGreaterThanOrEqual(149);
    expect(await direct.get("lost")).toBeNull();
    client.close();
  });

  test("tells when a call has come, without polling", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint);

    const [count] = await Promise.all([
      proxy.seen(PUT, 2).then(() => proxy.count(PUT)),
      client.put("a").value("1").exec(),
      client.put("b").value("1").exec(),
    ]);

    expect(count).toBe(2);
    client.close();
  });

  test("shows which transactions take a place and which give one back", async () => {
    await using proxy = await startProxy();
    const client = connectTo(proxy.endpoint);
    const kinds: string[] = [];
    const look = (request: Buffer) => {
      kinds.push(takesPlace(request) ? "takes" : givesBack(request) ? "gives" : "reads");
      return false;
    };
    proxy.rule({ path: TXN, act: "hold", when: look });

    await client
      .if("q/1", "Create", "==", 0)
      .then(client.put("q/1").value("v"))
      .else(client.get("q/1"))
      .commit();
    await client.if("q/1", "Version", ">", 0).then(client.delete().key("q/1")).commit();
    await client
      .if("q/1", "Create", "==", 0)
      .then(client.get("q/1"))
      .else(client.put("q/1").value("w"))
      .commit();

    expect(kinds).toEqual(["takes", "gives", "reads"]);
    client.close();
  });

  test("breaks the clients' connections when the member dies", async () => {
    await using own = await startEtcd();
    await using proxy = await startGrpcProxy({ port: own.member.clientPort });
    const client = connectTo(proxy.endpoint);
    await client.put("alive").value("1");
    const watcher = await client.watch().key("alive").create();
    const broken = new Promise((resolve) => watcher.once("disconnected", resolve));

    await own.member.kill();

    await broken;
    client.close();
  });
});

/** A gRPC message that puts an empty value under `key`. */
function putRequest(key: string): Buffer {
  const length = key.length + 2;
  return Buffer.from([0, 0, 0, 0, length, 0x0a, key.length, ...Buffer.from(key)]);
}
