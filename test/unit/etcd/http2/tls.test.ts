import { EventEmitter, once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import type { TlsOptions as ServerOptions } from "node:tls";
import { describe, expect, test, vi } from "vitest";
import type { TlsOptions } from "../../../../src/etcd/http2/socket.js";
import { answerFrames, startPeer } from "../../../support/servers/http2-peer.js";
import { makeAuthority } from "../../../support/fixtures/certificates.js";
import { OK, PeerClient, type End, says } from "../../../support/fixtures/peer-calls.js";

const authority = makeAuthority("peer authority");
const stranger = makeAuthority("another authority");
const pair = authority.issue("peer");
const SERVER: ServerOptions = { key: pair.key, cert: pair.certificate, ALPNProtocols: ["h2"] };
const CLIENT: TlsOptions = { ca: authority.certificate };

/** How a call ends that `server` answers if the handshake succeeds, or to which it does `raw`. */
async function endAt(
  server: ServerOptions,
  tls: TlsOptions,
  hostname = "127.0.0.1",
  raw?: (socket: Socket) => void,
): Promise<End> {
  await using peer = await startPeer({ tls: server, ...(raw && { raw }) });
  const call = new PeerClient({ port: peer.port, hostname, tls }).call();
  void peer
    .connection()
    .then(async (connection) => {
      connection.greet();
      connection.send(answerFrames(await connection.request(), "answer"));
    })
    .catch(() => {});
  return await call.end;
}

const failure = (text: RegExp): End => ({
  failed: "connecting",
  text: says(text),
  inDoubt: false,
});

describe("TLS", () => {
  test("carries calls to a server that chooses h2", async () => {
    expect(await endAt(SERVER, CLIENT)).toEqual(OK);
  });

  test.each([
    ["1.2", "TLSv1.2"],
    ["1.3", "TLSv1.3"],
  ] as const)("%s carries calls with a client certificate", async (_, version) => {
    const server = { ...SERVER, ca: authority.certificate, requestCert: true, maxVersion: version };
    const client = authority.issue("client");
    expect(await endAt(server, { ...CLIENT, cert: client.certificate, key: client.key })).toEqual(OK);
  });

  test.each([
    ["1.2", "TLSv1.2"],
    ["1.3", "TLSv1.3"],
  ] as const)(
    "%s without the client certificate that the server wants fails with the reason",
    async (_, version) => {
      const server = { ...SERVER, ca: authority.certificate, requestCert: true, maxVersion: version };
      expect(await endAt(server, CLIENT)).toEqual(failure(/certificate required|handshake failure|alert/i));
    },
  );

  test.each(["TLSv1.2", "TLSv1.3"] as const)(
    "to a server that asks for a client certificate and closes without a word says so, in doubt about the call (%s)",
    async (version) => {
      const server = { ...SERVER, requestCert: true, rejectUnauthorized: false, maxVersion: version };
      const end = await endAt(server, CLIENT, "localhost", (socket) => {
        socket.once("data", () => socket.destroy());
      });
      expect(end).toEqual({
        failed: "turned away",
        text: says(/asked for a client certificate, and closed/),
        inDoubt: true,
      });
    },
  );

  test("whose records are damaged after the request was read leaves the call in doubt", async () => {
    const requests = new EventEmitter();
    const raw = (socket: Socket): void => {
      socket.on("error", () => {});
      socket.once("data", () => requests.emit("read"));
    };
    await using peer = await startPeer({ tls: SERVER, raw });
    const proxy = createServer((client) => {
      const server = connect(peer.port, "127.0.0.1");
      for (const each of [client, server]) each.on("error", () => {});
      client.pipe(server).pipe(client);
      // A record of application data with a wrong authentication tag.
      requests.once("read", () => {
        client.write(Buffer.concat([Buffer.from("1703030020", "hex"), Buffer.alloc(32)]));
      });
    });
    proxy.listen(0, "127.0.0.1");
    await once(proxy, "listening");
    try {
      const { port } = proxy.address() as AddressInfo;
      const end = await new PeerClient({ port, hostname: "127.0.0.1", tls: CLIENT }).call().end;
      expect(end).toMatchObject({ failed: "connecting", text: says(/bad record mac/i), inDoubt: true });
    } finally {
      proxy.close();
    }
  });

  test("to a server that closes after the handshake does not advise TLS", async () => {
    const end = await endAt(SERVER, CLIENT, "localhost", (socket) => socket.end());
    const text = says(/closed the connection right after the TLS handshake$/);
    expect(end).toEqual({ failed: "connecting", text, inDoubt: true });
  });

  test("without the server's authority fails with the reason", async () => {
    expect(await endAt(SERVER, { ca: stranger.certificate })).toEqual(failure(/certificate/));
  });

  test("is verified whatever the environment says", async () => {
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    try {
      expect(await endAt(SERVER, { ca: stranger.certificate })).toEqual(failure(/certificate/));
    } finally {
      vi.unstubAllEnvs();
    }
  });

  test("with another name than the certificate's fails with the reason", async () => {
    const named = authority.issue("other", ["etcd.example"]);
    const server = { ...SERVER, key: named.key, cert: named.certificate };
    expect(await endAt(server, CLIENT)).toEqual(failure(/altnames|127\.0\.0\.1/));
    expect(await endAt(server, CLIENT, "localhost")).toEqual(failure(/altnames|localhost/));
  });

  test("goes by serverName instead of the host name, if it is given", async () => {
    const named = authority.issue("other", ["etcd.example"]);
    const server = { ...SERVER, key: named.key, cert: named.certificate };
    expect(await endAt(server, { ...CLIENT, serverName: "etcd.example" })).toEqual(OK);
    expect(await endAt(SERVER, { ...CLIENT, serverName: "etcd.example" })).toEqual(
      failure(/altnames|etcd\.example/),
    );
  });

  test.each([
    ["does not know ALPN", { ...SERVER, ALPNProtocols: undefined }],
    ["offers HTTP/1.1 only", { ...SERVER, ALPNProtocols: ["http/1.1"] }],
  ])("to a server that %s fails with the reason", async (_, server) => {
    expect(await endAt(server as ServerOptions, CLIENT)).toEqual(failure(/does not speak HTTP\/2/));
  });

  test("to a server that speaks plain text fails with the reason", async () => {
    const raw = (socket: Socket): void =>
      void socket.once("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    await using peer = await startPeer({ raw });
    const call = new PeerClient({ port: peer.port, tls: CLIENT }).call();
    expect(await call.end).toEqual(failure(/wrong version number|does not speak TLS/));
  });

  test.each([
    ["certificate", { ...CLIENT, cert: Buffer.from("no PEM"), key: pair.key }],
    ["key", { ...CLIENT, cert: pair.certificate, key: Buffer.from("no PEM") }],
    ["pair of certificate and key", { ...CLIENT, cert: pair.certificate, key: stranger.issue("x").key }],
  ])("with a %s that makes no sense fails the call, and nothing else", async (_, tls) => {
    await using peer = await startPeer({ tls: SERVER });
    const client = new PeerClient({ port: peer.port, tls });
    expect(await client.call().end).toMatchObject({ failed: "connecting", inDoubt: false });
    // The time limit of the connection has nothing left to end.
    client.clock.advance(10_000);
    expect(client.clock.timers).toBe(0);
  });
});
