// The ports of the servers that tests start: a member that is killed finds its own free when it is restarted.
import { spawn } from "node:child_process";
import dgram from "node:dgram";
import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";
import { Guardian } from "../../support/servers/guarded.js";
import { freePorts } from "../../support/servers/ports.js";

const SERVERS = new URL("../../../dist/testing/servers.js", import.meta.url).href;
/** Of 17,000. Chosen at random, two such lists have 15 in common. */
const COUNT = 500;

/** A process that has chosen ports for servers, of which none runs now. */
function chooser(count = COUNT) {
  const code = `
    const { freePorts } = await import(${JSON.stringify(SERVERS)});
    console.log((await freePorts(${count})).join());
    for await (const _ of process.stdin);`;
  const child = owned(spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: "pipe" }));
  const said = new Said(child);
  return { child, said, ports: said.next().then((line) => line.split(",").map(Number)) };
}

/** Whether nobody chooses the port now. */
async function isMarked(port: number): Promise<boolean> {
  const socket = dgram.createSocket("udp4");
  socket.bind({ port, address: "127.0.0.1", exclusive: true });
  const free = await once(socket, "listening").catch(() => undefined);
  socket.close();
  return free === undefined;
}

test("no port is chosen by two processes at once, nor twice by one, while nothing listens on it", async () => {
  const all = await Promise.all([chooser().ports, chooser().ports, freePorts(COUNT)]);

  expect(new Set(all.flat()).size).toBe(3 * COUNT);
});

test("ports are free again when the process that has chosen them is killed, and when their guardian is dismissed", async () => {
  const [first, guardian] = [
    chooser(1),
    new Guardian(await mkdtemp(path.join(os.tmpdir(), "leasehold-ports-"))),
  ];
  const [killed = 0] = await first.ports;
  const [dismissed = 0] = await freePorts(1, guardian);
  const kept = await Promise.all([killed, dismissed].map(isMarked));
  first.child.kill("SIGKILL");
  await first.said.ended;
  await guardian.dismiss();

  expect(kept).toEqual([true, true]);
  expect(await Promise.all([killed, dismissed].map(isMarked))).toEqual([false, false]);
});
