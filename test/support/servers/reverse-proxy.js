// A reverse proxy in front of etcd, such as nginx: started here and stopped here, even if the starter dies.
import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { Guardian } from "./guarded.js";
import { freePorts } from "./ports.js";
import { PortTakenError, ServerProcess } from "./server-process.js";

const ATTEMPTS = 5;

/**
 * @typedef {object} ProxySetting
 * @property {number} target port of etcd on loopback
 * @property {import("../fixtures/certificates.js").Pair | undefined} [pair] TLS between client and proxy
 * @property {number} [streams] how many a client may have open on one connection
 * @property {number} [requests] how many a client may send on one connection; nginx only
 * @property {number} [idleS] the idle time-outs
 * @property {number} [table] bytes for the headers of each client's requests: its HEADER_TABLE_SIZE; Envoy and nghttpx only
 * @property {number} [drainS] how long the streams of an old configuration continue after a reload
 */

/**
 * @typedef {object} ProxyPlan
 * @property {string} name
 * @property {import("./debian-program.js").Program} found
 * @property {(file: string) => string[]} args with the path of the configuration
 * @property {(where: { port: number, folder: string }) => string} configuration
 * @property {string} [extension] of the configuration's file name
 * @property {RegExp} ready what it prints when it listens
 * @property {readonly [NodeJS.Signals, RegExp]} [reload] the signal, and what it prints when it has reloaded
 */

/** @param {ProxyPlan} plan @param {ProxySetting} setting @returns {Promise<ReverseProxy>} it listens */
export async function startReverseProxy(plan, setting) {
  for (let attempt = 1; ; attempt++) {
    const folder = await mkdtemp(path.join(os.tmpdir(), `leasehold-${plan.name}-`));
    const guardian = new Guardian(folder);
    const [port = 0] = await freePorts(1, guardian);
    const proxy = new ReverseProxy(plan, { setting, port, folder, guardian });
    try {
      await proxy.start();
      return proxy;
    } catch (error) {
      await proxy.stop();
      // another process took the port between our check and the server's bind
      if (!(error instanceof PortTakenError) || attempt === ATTEMPTS) throw error;
    }
  }
}

export class ReverseProxy {
  #plan;
  #place;
  #guardian;
  #process;

  /** @param {ProxyPlan} plan @param {{ setting: ProxySetting, port: number, folder: string, guardian: Guardian }} place */
  constructor(plan, place) {
    const { port, guardian } = place;
    this.#plan = plan;
    this.#place = place;
    this.endpoint = `${place.setting.pair ? "https" : "http"}://127.0.0.1:${port}`;
    this.#guardian = guardian;
    this.#process = new ServerProcess({
      title: plan.name,
      command: [plan.found.program, ...plan.args(this.#file)],
      env: plan.found.env,
      ready: plan.ready,
      answers: () => accepts(port),
      tellGuardian: (line) => guardian.tell(line),
    });
  }

  /** The last lines that it printed. */
  get log() {
    return this.#process.log;
  }

  async start() {
    const { setting, folder } = this.#place;
    if (setting.pair) {
      const { certificate, key } = setting.pair;
      await writeFile(path.join(folder, "pair.pem"), Buffer.concat([certificate, key]), { mode: 0o600 });
    }
    await writeFile(this.#file, this.#plan.configuration(this.#place));
    await this.#process.start();
  }

  /** Reads its configuration again; resolves when the new one is in use. */
  async reload() {
    const { name, reload } = this.#plan;
    if (!reload) throw new Error(`tests do not reload ${name}`);
    await this.#process.signal(...reload);
  }

  async stop() {
    await this.#process.kill();
    await this.#guardian.dismiss();
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }

  get #file() {
    return path.join(this.#place.folder, `proxy.${this.#plan.extension ?? "conf"}`);
  }
}

/** @param {number} port */
async function accepts(port) {
  const socket = net.connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.destroy();
  return "";
}
