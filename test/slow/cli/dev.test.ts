// `leasehold dev`: the built program, as a user starts and ends it.
import { expect, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { runCli, startCli } from "../../support/programs/cli.js";

const FREE = ["dev", "--port", "0"];
const hostsIn = (text: string): string[] => text.match(/127\.0\.0\.1:\d+/g) ?? [];

test("says where it listens, in one line, serves locks there, and ends with the signal's code", async () => {
  const cli = startCli([...FREE, "--version", "3.5"], {});
  await cli.says(/\n/);
  const hosts = hostsIn(cli.stdout());
  const cluster = connect({ hosts });
  const lock = await new Mutex(cluster, "dev/lock").lock();
  const listed = await runCli(["ls", "dev/"], { endpoints: hosts.join(",") });
  await lock.release();
  await cluster.close();
  cli.child.kill("SIGINT");
  const { code, stderr } = await cli.ended;

  expect(cli.stdout()).toMatch(/^development etcd 3\.5 on 127\.0\.0\.1:\d+, with all data in memory\n$/);
  expect(listed.stdout).toContain("dev/lock");
  expect([code, stderr]).toEqual([130, ""]);
});

test("with --members 3 and --json its one line has the three hosts", async () => {
  const cli = startCli([...FREE, "--members", "3", "--json"], {});
  await cli.says(/\n/);
  const found = JSON.parse(cli.stdout()) as { hosts: string[]; version: string };
  cli.child.kill("SIGTERM");

  expect(found).toEqual({ hosts: hostsIn(cli.stdout()), version: "3.6" });
  expect(found.hosts).toHaveLength(3);
  expect((await cli.ended).code).toBe(143);
});

test("a port in use, other members, another version and NODE_ENV=production end it with 64 at once", async () => {
  const cli = startCli(FREE, {});
  await cli.says(/\n/);
  const port = hostsIn(cli.stdout())[0]!.split(":")[1]!;
  const ends = await Promise.all([
    runCli(["dev", "--port", port], {}),
    runCli(["dev", "--members", "2"], {}),
    runCli(["dev", "--version", "3.3"], {}),
    runCli(FREE, { env: { NODE_ENV: "production" } }),
  ]);
  cli.child.kill("SIGINT");
  await cli.ended;

  expect(ends.map(({ code }) => code)).toEqual([64, 64, 64, 64]);
  expect(ends[0].stderr).toContain(`port ${port} of 127.0.0.1 is in use`);
});
