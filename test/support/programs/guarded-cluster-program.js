// The primary of node:cluster whose workers, and itself, have a guardian each: `node guarded-cluster-program.js OPTIONS NAME`. It takes
// NAME itself, as guarded-program.js does. Each line of its standard input is an order in JSON: `{ start: [OPTIONS, NAMES, HOW] }` forks
// a worker of guarded-program.js, and what that one prints is printed with its process ID; `{ end: PID }` has it end by its HOW.
import cluster from "node:cluster";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { connect, Mutex, Session } from "leasehold";

const [options = "", name = ""] = process.argv.slice(2);
const exec = fileURLToPath(new URL("guarded-program.js", import.meta.url));
const session = await Session.open(
  connect({ guardian: true, ...JSON.parse(options) }),
  JSON.parse(options).session,
);
const { fence } = await new Mutex(session, name).lock();

/** @param {object} line */
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
/** @type {Map<number, NonNullable<import("node:child_process").ChildProcess["stdin"]>>} */
const inputs = new Map();

/** @param {string[]} args */
function start(args) {
  cluster.setupPrimary({ exec, args, silent: true });
  const worker = cluster.fork();
  const { pid = 0, stdin, stdout } = worker.process;
  if (!stdin || !stdout) throw new Error("a worker of cluster has pipes if it is silent");
  inputs.set(pid, stdin);
  createInterface({ input: stdout }).on("line", (line) => print({ pid, ...JSON.parse(line) }));
  worker.on("exit", () => print({ exited: pid }));
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const order = JSON.parse(line);
  if (order.start) start(order.start);
  else inputs.get(order.end)?.write("end\n");
});
print({ pid: process.pid, leases: [session.leaseId.toString(16)], fences: [String(fence)] });
