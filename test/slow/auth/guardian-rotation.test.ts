// Certificates and authorities that are exchanged while a process runs reach its guardian.
import { writeFile } from "node:fs/promises";
import { expect, onTestFinished, test } from "vitest";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { Guarded } from "../../support/programs/guarded.js";

/** From a restart of etcd on, a lease lives for its whole TTL. What is gone before was revoked. */
const TTL_SECONDS = 12;
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

test.each(["with the connection", "without a new connection", "while etcd did not answer"])(
  "a guardian revokes with the certificates that its process has got since: %s",
  { timeout: 90_000 },
  async (how) => {
    const [server, client] = [await filesOf("etcd"), await filesOf("client")];
    await using etcd = await startEtcd({ clientTls: { ...server.files, clientCertAuth: true } });
    const options = {
      ...{ hosts: etcd.endpoints, files: client.files },
      session: { ttlSeconds: TTL_SECONDS },
    };
    await using program = await Guarded.start(options, ["rotated/a"]);
    const valueOf = async (name: string) => (await etcd.member.metrics()).get(name) ?? 0;
    // The certificates were read just now, and are read again after some renewals.
    const isRead = program.readsCertificates();
    if (how === "while etcd did not answer") await etcd.member.kill();
    await Promise.all([server.exchange(), client.exchange()]);
    const restart = async () => {
      await etcd.member.kill();
      await etcd.member.restart();
    };
    if (how === "with the connection") {
      await restart();
      await isRead;
      // What a renewal has told the guardian, it knows at the next one.
      await expect
        .poll(() => valueOf("etcd_debugging_lease_renewed_total"), { timeout: TTL_SECONDS * 1000 })
        .toBeGreaterThanOrEqual(2);
      await program.kill();
    } else if (how === "without a new connection") {
      await isRead;
      await program.kill();
      await restart();
    } else {
      await isRead;
      // Of the attempts to connect, the second one reads what is new for sure, and the guardian knows it when that one has failed.
      for (let n = 0; n < 2; n++) await program.readsCertificates();
      await program.kill();
      await etcd.member.restart();
    }

    await expect.poll(() => placesOf(etcd.member, "rotated/a")).toEqual([]);
    expect(await valueOf("etcd_debugging_server_lease_expired_total")).toBe(0);
  },
);
