import { Redis } from "ioredis";

/** A client with ioredis' defaults: it reconnects for ever and sends again what was not answered. */
export function redisAt(address: string): Redis {
  const [host = "", port] = address.split(":");
  const client = new Redis({ host, port: Number(port) });
  // Errors of a connection that is made anew: unheard they would be printed.
  client.on("error", () => {});
  return client;
}
