import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Link } from "../../../src/testing/link.js";

describe("a link", () => {
  let server: net.Server;
  let link: Link;
  const clients: net.Socket[] = [];

  beforeEach(async () => {
    server = net.createServer((socket) => socket.on("error", () => {}).pipe(socket));
    await once(server.listen(0, "127.0.0.1"), "listening");
    link = await Link.open(() => ({ host: "127.0.0.1", port: (server.address() as AddressInfo).port }));
  });

  afterEach(async () => {
    for (const client of clients.splice(0)) client.destroy();
    await link.close();
    server.close();
  });

  async function connect() {
    const [host, port] = link.host.split(":");
    const client = net.connect(Number(port), host);
    clients.push(client);
    const failed = new Promise((resolve) => client.once("close", () => resolve(client.errored)));
    client.on("error", () => {});
    await Promise.race([once(client, "connect").catch(() => {}), failed]);
    return { client, failed };
  }

  async function echo(client: net.Socket, text: string): Promise<string> {
    client.write(text);
    return String((await once(client, "data"))[0]);
  }

  it("forwards both ways", async () => {
    const { client } = await connect();

    expect(await echo(client, "hello")).toBe("hello");
  });

  it("that is cut silently keeps connections open, drops every byte, and resets them when it is healed", async () => {
    const { client, failed } = await connect();
    await echo(client, "before");
    const heard: string[] = [];
    client.on("data", (chunk) => heard.push(String(chunk)));

    link.cut("silent");
    client.write("dropped");
    const late = await connect();
    late.client.write("dropped too");
    expect([client.destroyed, late.client.destroyed]).toEqual([false, false]);
    link.heal();

    expect(await failed).toMatchObject({ code: "ECONNRESET" });
    expect(await late.failed).toMatchObject({ code: "ECONNRESET" });
    expect(heard).toEqual([]);
    expect(await echo((await connect()).client, "after")).toBe("after");
  });

  it('that is cut with "reset" resets open and new connections', async () => {
    const open = await connect();
    await echo(open.client, "before");

    link.cut("reset");
    const late = await connect();

    expect(await open.failed).toMatchObject({ code: "ECONNRESET" });
    expect(await late.failed).toMatchObject({ code: "ECONNRESET" });
    link.heal();
    expect(await echo((await connect()).client, "after")).toBe("after");
  });

  it("passes each byte once, also after a release of what was not held", async () => {
    const { client } = await connect();
    await echo(client, "first");
    const heard: string[] = [];
    client.on("data", (chunk) => heard.push(String(chunk)));

    link.release();
    link.hold();
    link.hold();
    client.write("a");
    link.release();
    link.release();
    client.write("b!");
    await expect.poll(() => heard.join("")).toContain("!");

    client.end();
    await once(client, "close");
    expect(heard.join("")).toBe("ab!");
  });

  it("passes the end of a connection on", async () => {
    const served = once(server, "connection") as Promise<[net.Socket]>;
    const { client } = await connect();
    const [socket] = await served;

    client.destroy();

    await once(socket, "close");
    expect(socket.destroyed).toBe(true);
  });

  it("leaves no connection open that is cut while it ends: Node.js would not end", async () => {
    const bell = net.createServer((socket) => socket.once("data", () => link.cut("reset")));
    await once(bell.listen(0, "127.0.0.1"), "listening");
    const ring = net.connect((bell.address() as AddressInfo).port, "127.0.0.1");
    await once(ring, "connect");
    const { client } = await connect();
    expect(await echo(client, "both ways")).toBe("both ways");
    expect(acceptedBy(link)).toBe(1);

    // The link hears both at once, the end first.
    client.end(() => ring.end("now"));
    await once(client, "close");

    await expect.poll(() => acceptedBy(link)).toBe(0);
    bell.close();
  });
});

/** Its connections, those that Node.js has forgotten among them. */
function acceptedBy({ host }: Link): number {
  const { libuv } = process.report.getReport() as unknown as {
    libuv: { readonly localEndpoint?: { readonly port: number } }[];
  };
  const port = Number(host.split(":")[1]);
  const listeners = 1;
  return libuv.filter(({ localEndpoint }) => localEndpoint?.port === port).length - listeners;
}
