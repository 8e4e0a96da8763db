import { once } from "node:events";
import net from "node:net";
import tls from "node:tls";
import { expect, it } from "vitest";
import { makeAuthority } from "../../support/fixtures/certificates.js";
import { startTlsFront } from "../../support/proxies/tls-front.js";

it("the TLS front shows another certificate to new connections only, and passes bytes both ways", async () => {
  const authority = makeAuthority("authority");
  const stranger = makeAuthority("stranger");
  const server = net.createServer((socket) => socket.pipe(socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  const own = authority.issue("m1");
  await using front = await startTlsFront(() => port, own);
  const connect = async () => {
    const client = tls.connect({ port: front.port, host: "127.0.0.1", ca: authority.certificate });
    await once(client, "secureConnect");
    return client;
  };
  const echo = async (client: tls.TLSSocket, text: string) => {
    client.write(text);
    const [bytes] = (await once(client, "data")) as [Buffer];
    return bytes.toString();
  };

  const first = await connect();
  front.show(stranger.issue("m1"));
  await expect(connect()).rejects.toThrow(/unable to verify|issuer/);
  expect(await echo(first, "still open")).toBe("still open");
  front.show(own);
  const second = await connect();
  expect(await echo(second, "again")).toBe("again");

  first.destroy();
  second.destroy();
  server.close();
});
