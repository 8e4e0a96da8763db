// What a first program prints where no etcd runs.
import net from "node:net";
import { once } from "node:events";
import { inspect } from "node:util";
import { expect, test } from "vitest";
import { connect, EtcdUnavailableError, Mutex } from "../../../src/index.js";

/** A port at which nothing listens. */
async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

test("an error of hosts where nothing listens asks whether etcd runs, without our stacks", async () => {
  await using cluster = connect({
    hosts: [await freePort(), await freePort()].map((port) => `127.0.0.1:${port}`),
  });

  const error: unknown = await new Mutex(cluster, "jobs/nightly")
    .lock({ timeoutMs: 500 })
    .catch((it: unknown) => it);

  expect(error).toBeInstanceOf(EtcdUnavailableError);
  const { message, cause, members } = error as EtcdUnavailableError;
  expect(message).toMatch(/ECONNREFUSED.*; .*ECONNREFUSED.*\. Is etcd running\?$/);
  expect(cause.errors.map((each: Error) => each.message)).toEqual(
    [...members.values()].map((each) => each.message),
  );
  const [own, causes = ""] = inspect(error).split("[cause]");
  expect(own).toContain("no-etcd.test.ts");
  expect(causes.split("\n").length).toBeLessThan(10);
  expect(causes).not.toContain("    at ");
  // Whoever looks for it finds the whole story.
  expect(inspect([...members.values()][0])).toContain("code: 'ECONNREFUSED'");
});
