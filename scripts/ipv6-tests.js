// Runs test/ipv6 against an etcd on [::1]. Prints `not run: reason` and exits with 75 if this machine has no IPv6 loopback.
import { once } from "node:events";
import net from "node:net";
import { exitNotRun, runVitest } from "./vitest-run.js";

/** @returns {Promise<void>} rejects if nothing can listen on [::1] */
async function findLoopback() {
  const server = net.createServer().listen(0, "::1");
  await once(server, "listening");
  server.close();
}

await findLoopback().catch(exitNotRun);
process.exitCode = await runVitest("test/ipv6", { env: { LEASEHOLD_IPV6: "::1" } });
