// Leaders in a process that stands still when it is told to: `node leaders-program.js OPTIONS NAME LEADERS LEAD`. OPTIONS are those of
// `connect`, LEAD those of `lead`, in JSON; `"healthy": "asks etcd"` is a check that does, and `"says true"` one that needs nobody. Prints
// a line of JSON when all of them lead, and one after each command of its input:
// "block MS": the state in the first line after a block of so long, in which no other line runs;
// "beat MS": the same, after a heartbeat of each in that line;
// "look": the state now.
import { createInterface } from "node:readline";
import { connect, Election, lead } from "leasehold";

const [options = "{}", name = "", leaders = "1", given = "{}"] = process.argv.slice(2);
const cluster = connect(JSON.parse(options));
const { healthy, ...rest } = JSON.parse(given);
const cell = new Int32Array(new SharedArrayBuffer(4));
/** @type {import("leasehold").Leadership[]} */
const terms = [];
let checks = 0;
let onTerm = () => {};

for (let n = 0; n < Number(leaders); n++) {
  const other = new Election(cluster, `${name}/none`);
  const asks = async () => (await other.leader()) === undefined && ++checks > 0;
  const check = healthy === "asks etcd" ? asks : () => ++checks > 0;
  const work = (/** @type {import("leasehold").Leadership} */ leadership) => {
    terms.push(leadership);
    onTerm();
    return new Promise(() => {});
  };
  void lead(cluster, `${name}/${n}`, work, { ...rest, ...(healthy && { healthy: check }) });
}

function report() {
  const states = terms.map((term) => ({
    held: term.held,
    fence: String(term.fence),
    loss: term.signal.aborted ? term.signal.reason.loss : undefined,
  }));
  process.stdout.write(`${JSON.stringify({ checks, states })}\n`);
}

while (terms.length < Number(leaders)) await new Promise((resolve) => (onTerm = () => resolve(undefined)));
report();
// Heartbeats go on but for the block.
if (!healthy) setInterval(() => terms.forEach((term) => term.heartbeat()), 20);
createInterface({ input: process.stdin })
  .on("line", (line) => {
    const [command, ms] = line.split(" ");
    if (command !== "look") Atomics.wait(cell, 0, 0, Number(ms));
    if (command === "beat") for (const term of terms) term.heartbeat();
    report();
  })
  .on("close", () => process.exit());
