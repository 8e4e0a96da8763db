// @ts-check
// The process of leasehold's own etcd: three members, each with a port of its own.
import { startDevEtcd } from "leasehold/testing";
import { obey } from "./parent.js";

/** @typedef {{ k: "leader" } | { k: "kill" | "restart", index: number }} Request */

const etcd = await startDevEtcd({ members: 3, port: 0, evenInProduction: true });
process.send?.({ version: etcd.version, endpoints: etcd.hosts.map((host) => `http://${host}`) });
process.on("message", (/** @type {Request} */ request) => void carryOut(request));
obey(() => {});

/** @param {Request} request */
async function carryOut(request) {
  const answer = request.k === "leader" ? await etcd.leader() : await etcd[request.k](request.index);
  process.send?.(answer ?? null);
}
