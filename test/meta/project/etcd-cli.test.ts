// `npm run etcd`, and what it says to do next.
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { connect, fromEnv, Mutex } from "../../../src/index.js";
import { usualPorts } from "../../../scripts/etcd-ports.js";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";

const CLI = fileURLToPath(new URL("../../../scripts/etcd-cli.js", import.meta.url));

test("the usual ports are those of etcd's Procfile, and are used only if all of them are free", async () => {
  expect(await usualPorts(1, () => Promise.resolve(true))).toEqual([[2379, 2380]]);
  expect(await usualPorts(3, () => Promise.resolve(true))).toEqual([
    [2379, 2380],
    [22_379, 22_380],
    [32_379, 32_380],
  ]);
  expect(await usualPorts(3, (port) => Promise.resolve(port !== 32_380))).toBeUndefined();
});

test("`npm run etcd` runs beside another etcd, and prints what connects etcdctl's environment to it", async () => {
  // Taken by this test, or by another process before.
  const taken = net.createServer().on("error", () => undefined);
  taken.listen(2379, "127.0.0.1");
  onTestFinished(() => void taken.close());
  const child = owned(
    spawn(process.execPath, [CLI, "--members", "1"], { stdio: ["ignore", "pipe", "pipe"] }),
  );
  const said = new Said(child);
  await said.says("Ctrl-C");

  const [, name = "", value = ""] = /^ *export (ETCDCTL_ENDPOINTS)=(\S+)$/m.exec(said.stdout) ?? [];
  expect(said.stdout).toContain("Other ports than usual");
  await using cluster = connect(fromEnv({ [name]: value }));
  expect(cluster.hosts).toEqual([value]);
  await new Mutex(cluster, "cli").withLock((lock) => expect(lock.fence).toBeGreaterThan(0n));
  await cluster.close();

  child.kill("SIGINT");
  expect(await once(child, "exit")).toEqual([0, null]);
});
