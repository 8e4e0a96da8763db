// The process that ends the command of `leasehold run` when leasehold itself cannot.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { startCli } from "../../support/programs/cli.js";
import { owned } from "../../support/programs/owned.js";
import { isRunning, pidsIn } from "../../support/programs/process-state.js";

const GUARDIAN = fileURLToPath(new URL("../../../dist/tools/cli/run/run-command.js", import.meta.url));

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const whenGone = (pid: number) => expect.poll(() => isRunning(pid), { interval: 5 }).toBe(false);

/** A process that names a lease to its guardian, does `then`, and is killed. Resolves with what it has printed. */
async function killedAfter(lease: string, then: string): Promise<string> {
  const program = `
    import { spawn, execFileSync } from "node:child_process";
    import { Guardian } from ${JSON.stringify(GUARDIAN)};
    new Guardian(process.env.PATH, () => {}).expect(${JSON.stringify(lease)});
    ${then}
    process.stdout.write("", () => process.kill(process.pid, "SIGKILL"));
  `;
  const killed = owned(
    spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    }),
  );
  let said = "";
  killed.stdout.on("data", (text: Buffer) => (said += text.toString()));
  await once(killed, "close");
  return said;
}

test("a command ends though leasehold is killed right after it has started it", async () => {
  const start = `
    const env = { ...process.env, LEASEHOLD_LEASE: "6a1f0000deadbeef" };
    const { pid } = spawn("sleep", ["1000"], { detached: true, stdio: "ignore", env });
    console.log("pid " + pid);`;
  const [pid = 0] = pidsIn(await killedAfter("6a1f0000deadbeef", start));

  expect(pid).toBeGreaterThan(0);
  await whenGone(pid);
});

test("a command with another lease is left alone", async () => {
  const env = { ...process.env, LEASEHOLD_LEASE: "6a1f0000deadbee01" };
  const other = owned(spawn("sleep", ["1000"], { detached: true, stdio: "ignore", env }), { group: true });
  const tell = `
    const list = ["-o", "pid=", "--ppid", String(process.pid)];
    console.log("pid " + parseInt(execFileSync("ps", list).toString()));`;
  const [guardian = 0] = pidsIn(await killedAfter("6a1f0000deadbee0", tell));

  expect(guardian).toBeGreaterThan(0);
  await whenGone(guardian);
  expect(isRunning(other.pid ?? 0)).toBe(true);
  other.kill("SIGKILL");
});

test("the end of the guardian is reported, and the command continues under its lock, also past the time of its last order", async () => {
  const name = "guardian/ended";
  const cli = startCli(["run", "--ttl", "4s", name, "--", "sh", "-c", "echo ready; read -r go"], {
    endpoints: etcd.endpoints.join(","),
  });
  await cli.says("ready");
  // The command has the same name: the guardian was started first.
  const [guardian = 0] = await childrenOf(cli.child.pid ?? 0, "sh");
  await expect.poll(() => childrenOf(guardian, "sh")).toHaveLength(1);
  const [timer = 0] = await childrenOf(guardian, "sh");
  process.kill(guardian, "SIGKILL");
  await cli.says("the guardian has ended");
  await whenGone(timer);

  expect(await placesOf(etcd.member, name)).toHaveLength(1);
  cli.child.stdin?.end("go\n");
  const { code, stderr } = await cli.ended;
  expect(code).toBe(0);
  expect(stderr).not.toContain("was ended");
});

/** The pids of the children of that name, the oldest first. */
async function childrenOf(parent: number, command: string): Promise<number[]> {
  const ps = spawn("ps", ["-o", "pid=,comm=", "--ppid", String(parent)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let listed = "";
  ps.stdout.on("data", (part: Buffer) => (listed += part.toString()));
  await once(ps, "close");
  const lines = listed.split("\n").filter((line) => line.endsWith(` ${command}`));
  return lines.map((line) => Number.parseInt(line, 10));
}
