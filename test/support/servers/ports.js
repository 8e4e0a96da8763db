// Free ports on the loopback interface.
import net from "node:net";

/** Below the range of ephemeral ports: a killed server finds its port free when it is restarted. */
const FIRST = 15_000;
const COUNT = 17_000;

/**
 * @param {number} count
 * @returns {Promise<number[]>} distinct ports without a listener now, which may change a moment later
 */
export async function freePorts(count) {
  /** @type {Set<number>} */
  const ports = new Set();
  while (ports.size < count) {
    const port = FIRST + Math.floor(Math.random() * COUNT);
    if (!ports.has(port) && (await isFree(port))) ports.add(port);
  }
  return [...ports];
}

/**
 * @param {number} port
 * @returns {Promise<boolean>}
 */
export function isFree(port) {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
