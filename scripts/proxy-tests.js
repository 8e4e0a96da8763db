// Runs test/proxies against real reverse proxies. Prints `not run: reason` for those that cannot be had, and exits with 75
// without nginx or HAProxy.
import { findApache } from "../test/support/servers/apache.js";
import { findCaddy } from "../test/support/servers/caddy.js";
import { findEnvoy } from "../test/support/servers/envoy.js";
import { findHaproxy } from "../test/support/servers/haproxy.js";
import { findNghttpx } from "../test/support/servers/nghttpx.js";
import { findNginx } from "../test/support/servers/nginx.js";
import { exitNotRun, runVitest } from "./vitest-run.js";

const nginx = await findNginx().catch(exitNotRun);
const haproxy = await findHaproxy().catch(exitNotRun);
const found = [`nginx ${nginx.version}`, `HAProxy ${haproxy.version}`];
for (const [name, find] of Object.entries({
  ...{ Envoy: findEnvoy, nghttpx: findNghttpx, Apache: findApache, Caddy: findCaddy },
})) {
  const proxy = await find().catch(({ message }) => void console.log(`not run: ${message}`));
  if (proxy) found.push(`${name} ${proxy.version}`);
}
const versions = found.join(", ");
console.log(`${versions}.`);
// The tests mostly wait.
const args = ["--maxConcurrency", "16"];
process.exitCode = await runVitest("test/proxies", { env: { LEASEHOLD_PROXIES: versions }, args });
