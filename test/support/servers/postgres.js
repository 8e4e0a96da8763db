// A PostgreSQL server for tests, on a free port and with its own folder: started here and stopped here, even if the
// starter dies. It refuses to run as root, so root starts it as the user nobody.
import { execFile, execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { chown, mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { aptInstall } from "./apt-install.js";
import { Guardian } from "./guarded.js";
import { freePorts } from "./ports.js";
import { PortTakenError, ServerProcess } from "./server-process.js";

const run = promisify(execFile);
const ATTEMPTS = 5;
const STOP_MS = 10_000;
/** Where Debian installs its programs, which are not on the PATH. */
const DEBIAN = "/usr/lib/postgresql";

/** @typedef {{ folder: string, version: string }} Programs */

/** @returns {Promise<Programs>} rejects with the reason why there is none */
export async function findPostgres() {
  if (process.platform === "win32") throw new Error("no PostgreSQL is looked for on Windows");
  if (!programs()) {
    await aptInstall(["postgresql"]).catch((/** @type {Error} */ error) => {
      throw new Error(`no PostgreSQL here: ${error.message}`, { cause: error });
    });
  }
  const folder = programs();
  if (folder === undefined) throw new Error(`no initdb and postgres on the PATH nor in ${DEBIAN}`);
  const { stdout } = await run(path.join(folder, "postgres"), ["--version"], { timeout: 20_000 });
  return { folder, version: / (\d+[.\d]*)/.exec(stdout)?.[1] ?? "unknown" };
}

function programs() {
  const releases = existsSync(DEBIAN) ? readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a)) : [];
  const debian = releases.map((release) => path.join(DEBIAN, release, "bin"));
  const folders = [...(process.env["PATH"] ?? "").split(path.delimiter).filter(Boolean), ...debian];
  return folders.find((folder) =>
    ["initdb", "postgres"].every((file) => existsSync(path.join(folder, file))),
  );
}

/** @returns {Promise<PostgresServer>} it answers */
export async function startPostgres() {
  const { folder } = await findPostgres();
  for (let attempt = 1; ; attempt++) {
    try {
      return await startOnce(folder);
    } catch (error) {
      // another process took the port between our check and the server's bind
      if (!(error instanceof PortTakenError) || attempt === ATTEMPTS) throw error;
    }
  }
}

/** @param {string} programs */
async function startOnce(programs) {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-postgres-"));
  const guardian = new Guardian(folder);
  try {
    const [port] = /** @type {[number]} */ (await freePorts(1, guardian));
    const within = await unprivileged(folder);
    const data = path.join(folder, "data");
    const init = ["-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"];
    const [first, ...rest] = [...within, path.join(programs, "initdb"), ...init];
    await run(/** @type {string} */ (first), rest, { cwd: folder, timeout: 60_000 });
    const [program = "", ...args] = [...within, path.join(programs, "postgres"), ...serving(data, port)];
    const server = new PostgresServer(port, [program, ...args], guardian);
    await server.start();
    return server;
  } catch (error) {
    await guardian.dismiss();
    throw error;
  }
}

/** @param {string} data @param {number} port */
function serving(data, port) {
  const settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"];
  return ["-D", data, "-p", String(port), ...settings.flatMap((setting) => ["-c", setting])];
}

/** The command that starts a program without root rights, and execs it. @param {string} folder */
async function unprivileged(folder) {
  if (process.getuid?.() !== 0) return [];
  const [uid, gid] = ["-u", "-g"].map((which) => Number(execFileSync("id", [which, "nobody"])));
  await chown(folder, Number(uid), Number(gid));
  return ["setpriv", `--reuid=${uid}`, `--regid=${gid}`, "--clear-groups", "--"];
}

/** Stop it, or use `await using`. */
export class PostgresServer {
  #process;
  #guardian;

  /** @param {number} port @param {readonly [string, ...string[]]} command @param {Guardian} guardian */
  constructor(port, command, guardian) {
    this.url = `postgres://postgres@127.0.0.1:${port}/postgres`;
    this.#guardian = guardian;
    this.#process = new ServerProcess({
      title: "PostgreSQL",
      command,
      env: { ...process.env, LC_ALL: "C" },
      ready: /ready to accept connections/,
      answers: () => this.#answers(),
      tellGuardian: (line) => guardian.tell(line),
    });
  }

  start() {
    return this.#process.start();
  }

  async #answers() {
    const client = new pg.Client({ connectionString: this.url });
    try {
      await client.connect();
      await client.query("SELECT 1");
      return "";
    } finally {
      await client.end();
    }
  }

  /** Gracefully (SIGINT), because its folder is removed next and its children write to it. */
  async stop() {
    const until = Date.now() + STOP_MS;
    if (this.#process.running) process.kill(this.#process.pid, "SIGINT");
    while (this.#process.running && Date.now() < until) await delay(20);
    await this.#process.kill();
    await this.#guardian.dismiss();
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}
