// A program whose leases a guardian revokes when it has ended: `node guarded-program.js OPTIONS NAMES HOW`. OPTIONS are those of
// `connect` in JSON, `adopt`, the lease of an orphaned session, `files`, those of the certificates, and `user`, the file with user and password. Takes each of the NAMES in a cluster of its own, prints a line of JSON
// with what it holds, and then ends by HOW: "wait" does not, and "fork" has a child that lives on. It prints `guarded` when another guardian runs.
import { fork } from "node:child_process";
import { subscribe } from "node:diagnostics_channel";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { connect, Mutex, Session } from "leasehold";

const [options = "", names = "", how = "wait"] = process.argv.slice(2);
const { adopt, files, user, ...connection } = JSON.parse(options);

/** Certificates are read again. Once they have been used, the program prints `read`. */
function credentials() {
  setImmediate(() => process.stdout.write("read\n"));
  const { ca, cert, key } = files;
  return { rootCertificate: readFileSync(ca), certChain: readFileSync(cert), privateKey: readFileSync(key) };
}

/** They are read again. Once they have been used, the program prints `password` and the password. */
function auth() {
  const read = JSON.parse(readFileSync(user, "utf8"));
  setImmediate(() => process.stdout.write(`password ${read.password}\n`));
  return read;
}

subscribe("leasehold.guardian", (message) => {
  const { error } = /** @type {import("leasehold/diagnostics").GuardianMessage} */ (message);
  if (error === undefined) process.stdout.write("guarded\n");
});
if (files !== undefined) connection.credentials = credentials;
if (user !== undefined) connection.auth = auth;
const clusters = names.split(",").map(() => connect({ guardian: true, ...connection }));
const sessions = await Promise.all(
  clusters.map((cluster) =>
    adopt === undefined
      ? Session.open(cluster, connection.session)
      : Session.adopt(cluster, BigInt(`0x${adopt}`)),
  ),
);
const locks = await Promise.all(
  names.split(",").map((name, n) => new Mutex(/** @type {Session} */ (sessions[n]), name).lock()),
);
const leases = sessions.map(({ leaseId }) => leaseId.toString(16));
const heir =
  how === "fork" ? fork(fileURLToPath(new URL("heir-program.js", import.meta.url))).pid : undefined;
process.stdout.write(
  `${JSON.stringify({ leases, fences: locks.map(({ fence }) => String(fence)), heir })}\n`,
);

/** @type {Readonly<Record<string, () => unknown>>} */
const ENDS = {
  exit: () => process.exit(3),
  throw: () => setImmediate(() => Promise.reject(new Error("on purpose"))),
  memory: () => {
    const kept = [];
    for (;;) kept.push(Array.from({ length: 100_000 }, (_, n) => n + kept.length));
  },
  orphan: async () => {
    // The exit code of a process that has nothing left to wait for.
    process.exitCode = 13;
    await Promise.all(sessions.map((session) => session.orphan()));
    process.exit(0);
  },
  close: () => Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 }))),
};
process.stdin.once("data", () => {
  process.stdin.destroy();
  ENDS[how]?.();
});
