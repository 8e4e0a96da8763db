// A program that stands still when it is told to: `node busy-program.js OPTIONS NAME`. OPTIONS are those of `connect` in JSON, and
// `files`, those of the certificates, which are read again for each connection, or `user`, the one with user and password, for each token. Takes the lock NAME, and prints a line of JSON with the state in which it is then, and one after each command of its input:
// "block MS": what the first line says after a loop of so long, in which no other line runs;
// "watch MS": the same after a loop that reads `held` until it is false, or for so long;
// "idle MS": the same after so long without work;
// "orphan", "close": ends what it has, and the program by that.
// LEASEHOLD_PROGRAM is another build than that of the package. GONE_AFTER_CONNECT is a file or the working directory, which the
// program removes once it has called `connect`.
import { subscribe } from "node:diagnostics_channel";
import { readFileSync, rmSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";

const [options = "", name = ""] = process.argv.slice(2);
const { LEASEHOLD_PROGRAM = "leasehold", GONE_AFTER_CONNECT: gone } = process.env;
const { connect, Mutex } = /** @type {typeof import("leasehold")} */ (await import(LEASEHOLD_PROGRAM));
const { files, user, ...connection } = JSON.parse(options);
if (user !== undefined) connection.auth = () => JSON.parse(readFileSync(user, "utf8"));
if (files !== undefined)
  connection.credentials = () => ({
    rootCertificate: readFileSync(files.ca),
    certChain: readFileSync(files.cert),
    privateKey: readFileSync(files.key),
  });
const cluster = connect(connection);
if (gone !== undefined) rmSync(gone, { recursive: true });
const session = await cluster.session();
const lock = await new Mutex(cluster, name).lock();
/** @type {string[]} */
const states = [];
subscribe("leasehold.session", (message) => void states.push(/** @type {{ to: string }} */ (message).to));
const cell = new Int32Array(new SharedArrayBuffer(4));

/** All by one reading of the state. */
function report() {
  const { held, fence } = lock;
  const remainingMs = session.remainingMs();
  const { aborted, reason } = session.signal;
  const [seconds, nanoseconds] = process.hrtime();
  const line = {
    ...{ held, remainingMs, aborted, states, fence: String(fence), lease: session.leaseId.toString(16) },
    // Of the clock that all processes of the machine share.
    at: seconds * 1000 + nanoseconds / 1e6,
    ...(aborted && {
      error: reason.message,
      loss: reason.loss,
      sinceLastRenewalMs: reason.sinceLastRenewalMs,
    }),
  };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

report();
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const [command, ms] = line.split(" ");
  if (command === "idle") return void delay(Number(ms)).then(report);
  if (command === "block") {
    Atomics.wait(cell, 0, 0, Number(ms));
    return report();
  }
  if (command === "watch") {
    for (const end = performance.now() + Number(ms); lock.held && performance.now() < end;)
      Atomics.wait(cell, 0, 0, 10);
    return report();
  }
  lines.close();
  process.stdin.destroy();
  void (command === "orphan" ? session.orphan().then(() => process.exit()) : cluster.close({ drainMs: 0 }));
});
