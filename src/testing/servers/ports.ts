import net from "node:net";

/** Below the range of ephemeral ports: a killed server finds its port free when it is restarted. */
const FIRST = 15_000;
const COUNT = 17_000;

/**
 * Distinct ports of 127.0.0.1 without a listener now. Another process may take one a moment later: a server that finds its port
 * taken ends with a `PortTakenError`, and is started again on other ports.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = FIRST + Math.floor(Math.random() * COUNT);
    if (!ports.has(port) && (await isFree(port))) ports.add(port);
  }
  return [...ports];
}

/** Whether the port has no listener now. */
export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
