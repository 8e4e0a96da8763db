// `npm run etcd`: a local cluster to experiment with, until Ctrl-C. `npm run etcd -- --members 1` for a single member.
import { parseArgs } from "node:util";
import { exitWhenMissing, PortTakenError, startEtcd } from "../test/support/etcd/etcd.js";
import { usualPorts } from "./etcd-ports.js";

const members = membersOf(process.argv.slice(2));
const ports = await usualPorts(members);
const cluster = await start().catch(exitWhenMissing);
const { program } = cluster.etcdctlCommand();

console.log(`etcd ${cluster.version}, ${members} member${members === 1 ? "" : "s"}:`);
for (const member of cluster.members) console.log(`  ${member.name}  ${member.endpoint}  pid ${member.pid}`);
if (!cluster.endpoints.some((endpoint) => endpoint.endsWith(":2379")))
  console.log("Other ports than usual: one of etcd's own is in use.");
console.log("\nIn another terminal, for etcdctl, leasehold and connect(fromEnv()):");
console.log(`  export ETCDCTL_ENDPOINTS=${cluster.endpoints.join(",")}`);
console.log(`\nThen:\n  ${program} member list\n  npx leasehold ls`);
console.log(`\nOr in a program:\n  connect({ hosts: ${JSON.stringify(cluster.endpoints.join(","))} })`);
console.log("\nCtrl-C stops it and removes its data.");

const keepOpen = setInterval(() => {}, 60_000);
for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) {
  process.once(name, () => {
    clearInterval(keepOpen);
    void cluster.stop().then(() => console.log("Stopped."));
  });
}

async function start() {
  try {
    return await startEtcd({ members, ...(ports && { ports }) });
  } catch (error) {
    // Another process took a port meanwhile.
    if (!(error instanceof PortTakenError)) throw error;
    return startEtcd({ members });
  }
}

/** @param {string[]} argv @returns {1 | 3 | 5} */
function membersOf(argv) {
  const { values } = parseArgs({ args: argv, options: { members: { type: "string", default: "3" } } });
  const count = Number(values.members);
  if (count === 1 || count === 3 || count === 5) return count;
  console.error(`Expected --members to be 1, 3 or 5, got ${values.members}`);
  process.exit(2);
}
