// An etcd for development on this machine, in this process: `startDevEtcd()` of `leasehold/testing`. It listens on 127.0.0.1 only.
import { once } from "node:events";
import { command, parseInteger } from "./command.js";
import { CliError, EXIT, json, usageError } from "./io.js";
import type { DevJson } from "./json-types.js";

const VERSIONS = ["3.4", "3.5", "3.6", "3.7"] as const;

export const dev = command({
  name: "dev",
  args: "",
  positionals: [0, 0],
  summary: "run a development etcd, which keeps everything in memory",
  needsNoEtcd: true,
  help: [
    "Runs a development etcd in this process, on 127.0.0.1, for leasehold, etcdctl of 3.4 to 3.7, Go's concurrency, jetcd and the package etcd3. It keeps keys and users in memory, and has no TLS. No etcd needs to be installed.",
    "It has users, v3lock, v3election and /health, but no changes of the membership, no snapshots, no alarm CORRUPT, no JSON gateway and no metrics: doctor skips what it would ask for there.",
    "It runs until it gets SIGINT, SIGTERM or SIGHUP. With NODE_ENV=production it does not start. Exit code 64: that, or a port is in use.",
  ],
  flags: {
    port: {
      value: "N",
      text: "port of the first member, the others use the next ones; 0: any free ports; default 2379",
    },
    members: { value: "N", text: "1 or 3; default 1" },
    version: { value: "3.N", text: "the release of etcd to behave like, 3.4 to 3.7; default 3.6" },
    "even-in-production": { text: "start even with NODE_ENV=production" },
  },
  async run({ flags, io, signal, json: wantsJson }) {
    const members = parseInteger("members", flags.members ?? "1", { min: 1, max: 3 });
    const max = 65_536 - members;
    const port = parseInteger("port", flags.port ?? "2379", { min: 0, max });
    const version = VERSIONS.find((each) => each === (flags.version ?? "3.6"));
    if (members === 2) throw usageError('--members must be 1 or 3, got "2"');
    if (version === undefined)
      throw usageError(`--version must be 3.4, 3.5, 3.6 or 3.7, got "${flags.version}"`);
    const evenInProduction = flags["even-in-production"] === true;
    if (io.env["NODE_ENV"] === "production" && !evenInProduction)
      throw usageError("NODE_ENV is production, but this etcd keeps nothing; see --even-in-production");
    // Another file of the package, which no other command needs.
    const { startDevEtcd } = await import("../../testing/start.js");
    const options = { port, members: members as 1 | 3, version, evenInProduction };
    const etcd = await startDevEtcd(options).catch((error: unknown) => Promise.reject(portError(error)));
    // Nothing of that etcd keeps this process alive.
    const keepsRunning = setInterval(() => {}, 2 ** 30);
    try {
      const { hosts } = etcd;
      io.stdout.write(
        wantsJson
          ? json({ hosts, version } satisfies DevJson)
          : `development etcd ${version} on ${hosts.join(", ")}, with all data in memory\n`,
      );
      if (!signal.aborted) await once(signal, "abort");
    } finally {
      clearInterval(keepsRunning);
      await etcd.stop();
    }
    signal.throwIfAborted();
    return EXIT.ok;
  },
});

function portError(error: unknown): unknown {
  const { code, port } = error as NodeJS.ErrnoException & { readonly port?: number };
  if (code !== "EADDRINUSE" && code !== "EACCES") return error;
  const problem = code === "EACCES" ? "may not be used" : "is in use";
  return new CliError(EXIT.usage, `port ${port} of 127.0.0.1 ${problem}`, "give another one with --port");
}
