// Runs a docker engine in namespaces of its own, and outlives the process that asked for it by a moment: when the pipe
// on standard input closes, however that process ended, the engine ends in order and its folder is removed.
// Arguments: the folder, then dockerd's command. Prints the ID of a process in the engine's network, and "ended" when the
// engine has ended; what it said is in the folder's file "log".
import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";

// Its bridges touch no network of this machine, its mounts vanish with it, and with its first process all die.
const APART = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
const WITH_LOOPBACK = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"];
/** For all containers to end, after which they are killed. */
const PATIENCE_MS = 20_000;

const [folder = "", ...command] = process.argv.slice(2);
for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) process.on(name, () => {});

// Not to a pipe of ours: an engine that cannot write its log dies of it, and leaves frozen containers behind.
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

// What unshare started; it does not pass signals on. A paused container would survive a kill: the engine thaws it.
function tellToEnd() {
  if (child.exitCode !== null) return;
  const [engine] = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").split(" ");
  if (engine) process.kill(Number(engine), "SIGTERM");
}
