import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { expect, it } from "vitest";
import { Observer } from "../../lab/runner/observer.js";
import { encode } from "../../support/clients/gateway-text.js";

const CANCELED = { result: { canceled: true } };
const put = (rev: string) => ({
  result: { events: [{ kv: { key: encode("lock/a"), mod_revision: rev, create_revision: rev } }] },
});

it("survives a watch that etcd cancels, and whose connection then breaks", async () => {
  const watches: http.ServerResponse[] = [];
  const server = http.createServer((_, response) => {
    watches.push(response);
    response.write(`${JSON.stringify(watches.length === 1 ? CANCELED : put("7"))}\n`);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const observer = new Observer([{ endpoint }], "lock/", 1n);

  await observer.until(() => observer.living("lock/").length === 1, { timeoutMs: 10_000 });
  for (const watch of watches) watch.destroy();
  await expect.poll(() => watches.length).toBeGreaterThan(2);

  expect(observer.events.map(({ rev }) => rev)).toEqual([7n]);
  await observer.stop();
  server.closeAllConnections();
  server.close();
});
