// What `leasehold doctor` says about endpoints that are none, and how it ends whatever a server does.
import { once } from "node:events";
import http from "node:http";
import net, { type AddressInfo, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startEtcdGrpcProxy } from "../../support/etcd/etcd-grpc-proxy.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { examined, failures, findingsOf, leftovers } from "../../support/fixtures/doctor.js";
import { runCli } from "../../support/programs/cli.js";
import { freePorts } from "../../support/servers/ports.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

async function serving(server: Server | http.Server) {
  const sockets = new Set<net.Socket>();
  server.on("connection", (socket: net.Socket) => sockets.add(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

const PAGE = `<html>\u001b[31m\u202e${"x".repeat(10_000)}</html>`;

describe("leasehold doctor says what to do about", () => {
  test("a closed port, a name without an address, the port of peers, TLS at a plain port, and a grpc-proxy", async () => {
    await using proxy = await startEtcdGrpcProxy(etcd);
    const [port] = await freePorts(1);
    const list = (await etcd.member.gateway("/v3/cluster/member/list", {})) as {
      members: { peerURLs: string[] }[];
    };
    const peer = list.members[0]?.peerURLs[0] ?? "";
    const closed = `http://127.0.0.1:${port}`;
    const nowhere = "http://etcd.invalid:2379";
    const secure = (etcd.endpoints[0] ?? "").replace("http:", "https:");
    const { code, findings } = await examined([closed, nowhere, peer, secure, proxy.endpoint]);

    expect(code).toBe(69);
    expect(failures(findings, closed)).toEqual([
      expect.stringMatching(/^reach: nothing listens on port \d+.* \| start etcd there, or correct the port/),
    ]);
    expect(failures(findings, nowhere)).toEqual([
      expect.stringMatching(
        /^reach: the name etcd\.invalid has no address .* \| correct the name in --endpoints/,
      ),
    ]);
    expect(failures(findings, peer)).toEqual([
      `server: the port for etcd's peers, not the one for clients | use the client port in --endpoints: ${etcd.endpoints[0]}`,
    ]);
    expect(failures(findings, secure)).toEqual([
      expect.stringMatching(/^tls: this port speaks plain HTTP, no TLS \| use http:\/\/ in --endpoints/),
    ]);
    expect(failures(findings, proxy.endpoint)).toEqual([
      expect.stringMatching(
        /^server: .*grpc-proxy.* \| list the members of etcd in --endpoints, not the proxy/,
      ),
    ]);
    expect(await leftovers(etcd)).toEqual({ keys: 0, leases: 0 });
  });

  test("hosts of two clusters, and a web server in the list", async () => {
    await using other = await startEtcd();
    await using web = await serving(http.createServer((_, response) => response.end(PAGE)));
    const { code, findings } = await examined([...etcd.endpoints, ...other.endpoints, web.endpoint]);

    expect(code).toBe(1);
    expect(failures(findings, null)).toEqual([
      expect.stringMatching(
        /^cluster id: the endpoints belong to 2 clusters: .* \| list the members of one cluster/,
      ),
    ]);
    expect(failures(findings, null)[0]).toContain(`(${etcd.endpoints[0]})`);
    const [found = ""] = failures(findings, web.endpoint);
    expect(found).toMatch(/^server: a web server, not etcd: HTTP 200, .*\| correct the host and the port/);
    expect(found).toContain("\\u001b[31m\\u202ex");
    expect(found.length).toBeLessThan(400);
    expect(failures(findings, etcd.endpoints[0] ?? "")).toEqual([]);
  });

  test("a web server alone, whose page it shows escaped", async () => {
    await using web = await serving(http.createServer((_, response) => response.end(PAGE)));
    const { stdout } = await runCli(["doctor"], { endpoints: web.endpoint });

    expect(stdout).toContain("a web server, not etcd");
    expect(stdout).not.toMatch(/[\u001b\u202e]/);
  });
});

describe("leasehold doctor ends in time, and tells no secret,", () => {
  const limits = ["--timeout", "200ms"];
  const secret = { ETCDCTL_USER: "root", ETCDCTL_PASSWORD: "correct-horse" };

  test("where a server never answers, with TLS or without, sends bytes without an end, resets, or garbage", async () => {
    let received = "";
    const endless = net.createServer((socket) => {
      const more = setInterval(() => socket.write("HTTP/1.1 200 OK\r\nX: y\r\n"), 20);
      socket.on("error", () => {});
      socket.on("close", () => clearInterval(more));
    });
    const noise = net.createServer((socket) => {
      socket.on("error", () => {}).on("data", (bytes: Buffer) => (received += bytes.toString("latin1")));
      socket.end("\u0000\u001b[2Jno");
    });
    const reset = net.createServer((socket) => void socket.on("error", () => {}).resetAndDestroy());
    await using mute = await serving(net.createServer(() => {}));
    await using a = await serving(endless);
    await using b = await serving(noise);
    await using c = await serving(reset);
    const secure = mute.endpoint.replace("http:", "https:");
    const all = [mute.endpoint, secure, a.endpoint, b.endpoint, c.endpoint];
    const { code, findings, stdout, stderr } = await examined(all, limits, secret);

    expect([code, stderr]).toEqual([69, ""]);
    for (const endpoint of all) expect(failures(findings, endpoint)).toHaveLength(1);
    expect(failures(findings, mute.endpoint)).toEqual([
      expect.stringMatching(/^server: accepts connections, but does not answer within 200 ms \| check that/),
    ]);
    expect(failures(findings, secure)).toEqual([expect.stringMatching(/^tls: no TLS handshake: no answer/)]);
    expect(stdout).not.toMatch(/correct-horse|\u001b/);
    expect(received).toContain("GET /version");
    expect(received).not.toContain("correct-horse");
  });

  test("where a server passes for etcd and repeats the password and the token, or answers nothing more", async () => {
    const parrot = http.createServer((request, response) => {
      if (request.url === "/version") return response.end('{"etcdserver":"3.6.14"}');
      if (request.url?.endsWith("authenticate")) return response.end('{"token":"to.ken-12345"}');
      response.statusCode = 500;
      const [token = "none", password] = [request.headers.authorization, "correct-horse"];
      return response.end(JSON.stringify({ message: `token ${token}, password ${password}` }));
    });
    const sleeper = http.createServer((request, response) => {
      if (request.url === "/version") response.end('{"etcdserver":"3.6.14"}');
    });
    await using a = await serving(parrot);
    await using b = await serving(sleeper);
    const { code, findings, stdout } = await examined([a.endpoint, b.endpoint], limits, secret);

    expect(code).toBe(69);
    expect(findingsOf(findings, a.endpoint)).toMatchObject({ version: "ok", status: "skip" });
    expect(stdout).toContain("token ***, password ***");
    expect(stdout).not.toMatch(/correct-horse|to\.ken-12345/);
    expect(findingsOf(findings, b.endpoint)).toMatchObject({ status: "skip", answer: "fail" });
  });
});
