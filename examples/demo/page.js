// @ts-check
// `--ui`: the live page of the demo's queue. It only reads, and only this machine reaches it.
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "leasehold";
import { lockPage } from "leasehold/ui";

/**
 * @param {string[]} endpoints
 * @param {string} prefix
 */
export async function servePage(endpoints, prefix) {
  const cluster = connect({ hosts: endpoints });
  const page = lockPage(cluster, { prefix });
  const server = createServer(page).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const queue = encodeURIComponent(`${prefix}lock`);
  return {
    url: `http://127.0.0.1:${port}/#queue=${queue}`,
    close: async () => {
      page.close();
      server.closeAllConnections();
      server.close();
      await cluster.close();
    },
  };
}
