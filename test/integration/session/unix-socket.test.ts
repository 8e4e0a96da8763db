import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { freePorts } from "../../support/servers/ports.js";

/** An etcd that listens on a socket of the file system itself, or, before 3.7, behind a pipe. */
async function etcdAt(socket: string) {
  const etcd = await startEtcd();
  if (!/^3\.[0-6]\./.test(etcd.version)) {
    await etcd.stop();
    const [client = 0, peer = 0] = await freePorts(2);
    const args = [`--listen-client-urls=http://127.0.0.1:${client},unix://${socket}`];
    return startEtcd({ ports: [[client, peer]], args });
  }
  const pipe = net.createServer((from) => {
    const to = net.connect(etcd.member.clientPort, "127.0.0.1");
    from.on("error", () => to.destroy()).pipe(to);
    to.on("error", () => from.destroy()).pipe(from);
  });
  await once(pipe.listen(socket), "listening");
  onTestFinished(() => void pipe.close());
  return etcd;
}

test("a socket of the file system leads to etcd, for calls, renewals and watches", async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-socket-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  await using etcd = await etcdAt(path.join(folder, "etcd.sock"));
  await using cluster = connect({ hosts: `unix:${folder}/etcd.sock`, transport: "http2" });

  const lock = await new Mutex(cluster, "a").lock();
  const waiting = new Mutex(await Session.open(cluster), "a").lock();
  await expect.poll(() => placesOf(etcd.member, "a")).toHaveLength(2);
  await lock.release();

  const next = await waiting;
  expect(next.fence).toBeGreaterThan(lock.fence);
  await next.release();
  expect(cluster.health().members).toMatchObject([{ host: `unix://${folder}/etcd.sock`, ok: true }]);
});

test("a socket that is not there is named in the error", async () => {
  await using cluster = connect({ hosts: "unix:///no/such.sock", transport: "http2" });
  await expect(new Mutex(cluster, "a").lock()).rejects.toThrow(
    /no etcd reached within 3 s .*unix:\/\/\/no\/such\.sock: connect ENOENT/,
  );
});
