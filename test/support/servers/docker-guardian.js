// Runs a docker engine in separate namespaces, and briefly outlives the process that requested it: when the pipe on
// standard input closes, however that process ended, the engine is stopped gracefully and its folder is removed.
// Arguments: the folder, then dockerd's command. Prints the pid of a process in the engine's network, and "ended" when
// the engine has ended; its output is in the folder's file "log".
import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";

// Its bridges touch no network of this machine, its mounts vanish with it, and all its processes die with the first
// one.
const APART = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
const WITH_LOOPBACK = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"];
/** The time for all containers to end, after which they are killed. */
const PATIENCE_MS = 20_000;

const [folder = "", ...command] = process.argv.slice(2);
for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) process.on(name, () => {});

// Not to one of our pipes: an engine that cannot write its log dies, and leaves frozen containers behind.
const log = openSync(path.join(folder, "log"), "a");
const child = spawn("unshare", [...APART, ...WITH_LOOPBACK, ...command], {
  stdio: ["ignore", "ignore", log],
});
const ended = once(child, "exit");
await once(child, "spawn");
process.stdout.on("error", () => {}).write(`${child.pid}\n`);
child.once("exit", () => process.stdout.write("ended\n"));

await once(process.stdin.resume(), "end");
const late = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS);
tellToEnd();
await ended;
clearTimeout(late);
rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
process.exit();

// Signals the child of unshare, which does not forward signals. A paused container would survive a kill: the engine
// thaws it.
function tellToEnd() {
  if (child.exitCode !== null) return;
  const [engine] = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").split(" ");
  if (engine) process.kill(Number(engine), "SIGTERM");
}
