import { Redis } from "ioredis";

/** A client with ioredis' defaults: it reconnects forever and resends what was not answered. */
export function redisAt(address: string): Redis {
  const [host = "", port] = address.split(":");
  const client = new Redis({ host, port: Number(port) });
  // Errors of a connection that is being reestablished: without a listener, they would be printed.
  client.on("error", () => {});
  return client;
}
