// Certificates and authorities that are exchanged while a process runs reach the thread that renews its leases.
import { writeFile } from "node:fs/promises";
import { expect, onTestFinished, test } from "vitest";
import { startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { Busy } from "../../support/programs/busy.js";

const TTL_SECONDS = 5;
const TTL_MS = TTL_SECONDS * 1000;
const [old, fresh] = [makeAuthority("the old authority"), makeAuthority("the new authority")] as const;

async function filesOf(common: string) {
  const { remove, ...files } = await writeServerFiles(old, old.issue(common));
  onTestFinished(remove);
  const exchange = async () => {
    const { certificate, key } = fresh.issue(common);
    await writeFile(files.ca, fresh.certificate);
    await writeFile(files.cert, certificate);
    await writeFile(files.key, key);
  };
  return { files, exchange };
}

const TITLE =
  "a worker thread renews with the certificates that its process has got while it could not reach etcd";

test(TITLE, { timeout: 90_000 }, async () => {
  const [server, client] = [await filesOf("etcd"), await filesOf("client")];
  await using etcd = await startEtcd({ clientTls: { ...server.files, clientCertAuth: true } });
  await using program = await Busy.start(
    {
      ...{ hosts: etcd.endpoints, files: client.files, session: { ttlSeconds: TTL_SECONDS } },
      ...{ renewal: "worker", maxStallMs: 60_000 },
    },
    "rotated/thread",
  );
  await etcd.member.kill();
  await Promise.all([server.exchange(), client.exchange()]);
  await etcd.member.restart();

  expect(await program.idle(1.5 * TTL_MS)).toMatchObject({ held: true });
  // Now it is the thread that renews.
  expect(await program.block(2 * TTL_MS)).toMatchObject({ held: true, aborted: false });
});
