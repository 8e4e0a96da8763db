// Observes, then leads with a listener that throws, and closes nothing: if something keeps it alive after its last
// line, that is a bug in leasehold. `node lead-exit-program.js HOSTS`; prints a line of JSON on exit.
import { once } from "node:events";
import { connect, Election, lead } from "leasehold";

const [hosts = ""] = process.argv.slice(2);
const cluster = connect({ hosts: hosts.split(",") });
/** @type {(string | undefined)[]} */
const seen = [];
/** @type {string[]} */
const thrown = [];
process.on("uncaughtException", (error) => thrown.push(error.message));

for await (const leader of new Election(cluster, "exit/observed").observe()) {
  seen.push(leader?.value);
  break;
}
const heardOfUs = once(process, "uncaughtException");
const stop = new AbortController();
await lead(
  cluster,
  "exit/led",
  async () => {
    await heardOfUs;
    stop.abort();
  },
  {
    signal: stop.signal,
    value: "us",
    onLeader: () => {
      throw new Error("the listener's own");
    },
  },
);
process.on("exit", () => console.log(JSON.stringify({ seen, thrown: [...new Set(thrown)] })));
