// `npm run etcd`: a local cluster to experiment with, until Ctrl-C. `npm run etcd -- --members 1` for a single member.
import { parseArgs } from "node:util";
import { exitWhenMissing, startEtcd } from "../test/support/etcd/etcd.js";

const members = membersOf(process.argv.slice(2));
const cluster = await startEtcd({ members }).catch(exitWhenMissing);
const { program, args } = cluster.etcdctlCommand();

console.log(`etcd ${cluster.version}, ${members} member${members === 1 ? "" : "s"}:`);
for (const member of cluster.members) console.log(`  ${member.name}  ${member.endpoint}  pid ${member.pid}`);
console.log(`\nWith etcdctl:\n  ${program} ${args.join(" ")} member list`);
console.log(`\nIn a program:\n  connect({ hosts: ${JSON.stringify(cluster.endpoints)} })`);
console.log("\nCtrl-C stops it and removes its data.");

const keepOpen = setInterval(() => {}, 60_000);
for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) {
  process.once(name, () => {
    clearInterval(keepOpen);
    void cluster.stop().then(() => console.log("Stopped."));
  });
}

/** @param {string[]} argv @returns {1 | 3 | 5} */
function membersOf(argv) {
  const { values } = parseArgs({ args: argv, options: { members: { type: "string", default: "3" } } });
  const count = Number(values.members);
  if (count === 1 || count === 3 || count === 5) return count;
  console.error(`Expected --members to be 1, 3 or 5, got ${values.members}`);
  process.exit(2);
}
