// `node serve.js HOSTS PORT PREFIX [release]`: the built `leasehold/ui` on a server of its own, without a token. Prints its port;
// on a line of standard input, prints the processor time that it has used.
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { connect } from "leasehold";
import { lockPage } from "leasehold/ui";
import { listen } from "./scene.js";

const [hosts = "", port = "0", prefix = "", release] = process.argv.slice(2);
const cluster = connect({ hosts: hosts.split(",") });
const page = lockPage(cluster, { prefix, ...(release && { authorize: () => true }) });
console.log(`port ${await listen(createServer(page), Number(port))}`);
createInterface({ input: process.stdin }).on("line", () => {
  const { user, system } = process.cpuUsage();
  console.log(`used ${user + system} µs, ${process.memoryUsage.rss()} bytes`);
});
