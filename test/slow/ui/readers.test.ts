// Readers of the page's events that take nothing, or little: what they cost the process that serves them, which may hold locks.
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { putKeys } from "../../support/clients/many-keys.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { Listener } from "../../support/ui/client.js";
import { PageServer } from "../../support/ui/page-server.js";

/** Almost as many and almost as long as they may be: 20 MB in all. */
const NAMES = 19_900;
const nameOf = (n: number): string => `long/${n}-`.padEnd(1000, "x");
const STREAMS = 64;
/** The slow reader takes longer than the page bears with one that takes nothing. */
const SLOW_MS = 40_000;
const SLICE_MS = 50;
/** All that 64 readers may add to what one costs: the rows themselves are shared. */
const MOST_TIMES = 1.5;

let etcd: EtcdCluster;
beforeAll(() => {
  const build = fileURLToPath(new URL("../../../scripts/build.js", import.meta.url));
  execFileSync(process.execPath, [build], { timeout: 120_000 });
}, 150_000);
beforeAll(async () => {
  etcd = await startEtcd();
  await putKeys(
    etcd.member,
    Array.from({ length: NAMES }, (_, n) => `${nameOf(n)}/1f`),
    { value: '{"owner":"web-1"}' },
  );
}, 60_000);
afterAll(() => etcd.stop());

/** A reader that has got the head of the answer, and reads nothing more. */
async function openSilent(port: number): Promise<net.Socket> {
  const socket = net.connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await once(socket, "readable");
  return socket;
}

/** The names that a reader gets at a steady, low rate, until it has all of them or its stream ends. */
function readSlowly(port: number): Promise<ReadonlySet<string>> {
  const bytesEach = (NAMES * 1100 * SLICE_MS) / SLOW_MS;
  const names = new Set<string>();
  return new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1");
    let text = "";
    let ended = false;
    socket.write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    socket.on("close", () => (ended = true)).on("error", () => {});
    const timer = setInterval(() => {
      // Nobody listens for "data": what is not read here stays in the buffers of the system.
      const chunk = (socket.read(Math.min(bytesEach, socket.readableLength)) ?? "") as Buffer | string;
      text += chunk.toString("latin1");
      if (chunk.length > 0 && text.length < 100_000) return;
      // Heads of chunks may be within a name: only whole ones count.
      for (const [, name = ""] of text.replace(/\r\n[0-9a-f]+\r\n/g, "").matchAll(/"name":"(long\/\d+-x+)"/g))
        names.add(name);
      text = text.slice(-3000);
      if (!ended && names.size < NAMES) return;
      clearInterval(timer);
      socket.destroy();
      resolve(names);
    }, SLICE_MS);
    socket.read(0);
  });
}

/** The most memory that the server has, in MiB, until `end`. */
async function mostMemory(server: PageServer, end: Promise<unknown>): Promise<number> {
  let isOver = false;
  void end.then(() => (isOver = true));
  let most = 0;
  while (!isOver) {
    most = Math.max(most, (await server.used()).mib);
    await Promise.race([end, delay(250)]);
  }
  return most;
}

/** Resolves when the server lets another viewer in, and that one has all names. */
async function nextViewer(url: string): Promise<void> {
  for (;;) {
    const events = new Listener(`${url}events`);
    const names = new Set<string>();
    const hasAll = events.until(({ data }) => {
      for (const { name } of (data["rows"] ?? []) as { name: string }[]) names.add(name);
      return names.size >= NAMES;
    });
    await Promise.race([hasAll, events.untilEnd()]);
    events.close();
    if (names.size >= NAMES) return;
    await delay(500);
  }
}

test(
  "63 readers that read nothing cost the server little, and are cut, while one that reads slowly gets everything",
  { timeout: 150_000 },
  async () => {
    const server = await PageServer.start({ hosts: etcd.endpoints, prefix: "long/" });
    const alone = await mostMemory(server, nextViewer(server.url));
    const slow = readSlowly(server.port);
    const silent = await Promise.all(Array.from({ length: STREAMS - 1 }, () => openSilent(server.port)));
    const full = new Listener(`${server.url}events`);
    await full.untilEnd();
    const together = await mostMemory(server, nextViewer(server.url));
    console.log(`one reader: ${alone.toFixed(0)} MiB; 64: ${together.toFixed(0)} MiB`);

    expect(full.status).toBe(503);
    expect((await slow).size).toBe(NAMES);
    expect(together / alone).toBeLessThan(MOST_TIMES);
    for (const socket of silent) socket.destroy();
    await server.kill();
  },
);
