import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { expect, onTestFinished, test } from "vitest";
import { connect, fromEnv, Mutex } from "../../../src/index.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { CredentialsMessage } from "../../../src/base/telemetry/messages.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { Messages } from "../../support/fixtures/messages.js";

const LOCKS = 200;
const [old, fresh] = [makeAuthority("the old authority"), makeAuthority("the new authority")] as const;
const both = Buffer.concat([old.certificate, fresh.certificate]);

/** The files of the members, or those of the client. */
async function filesOf(common: string) {
  const files = await writeServerFiles(old, old.issue(common));
  onTestFinished(() => files.remove());
  const exchange = async (authority: typeof old) => {
    const { certificate, key } = authority.issue(common);
    await writeFile(files.cert, certificate);
    await writeFile(files.key, key);
  };
  return { ...files, trust: (bundle: Buffer) => writeFile(files.ca, bundle), exchange };
}

test.each(["a function", "the files of etcdctl's variables"])(
  "certificates and authorities of members and client are exchanged under 200 locks: %s",
  { timeout: 180_000 },
  async (given) => {
    const servers = await filesOf("etcd");
    const mine = await filesOf("client");
    await using etcd = await startEtcd({ members: 3, clientTls: { ...servers, clientCertAuth: true } });
    const env = { ETCDCTL_CACERT: mine.ca, ETCDCTL_CERT: mine.cert, ETCDCTL_KEY: mine.key };
    const credentials =
      given === "a function"
        ? () => ({
            rootCertificate: readFileSync(mine.ca),
            certChain: readFileSync(mine.cert),
            privateKey: readFileSync(mine.key),
          })
        : fromEnv(env).credentials;
    await using cluster = connect({ hosts: etcd.endpoints, credentials });
    using read = new Messages<CredentialsMessage>(
      CHANNELS.credentials,
      ({ hosts }) => hosts === cluster.hosts,
    );
    const told = () => read.all.map(({ error }) => error?.message);
    const locks = await Promise.all(
      Array.from({ length: LOCKS }, (_, n) => new Mutex(cluster, `rotated/${n}`).lock()),
    );
    /** Each member ends the connection of the client, and reads its own files. */
    const restartAll = async () => {
      for (const member of etcd.members) {
        await member.kill();
        await member.restart();
        // Another member must have the leases before the next one dies.
        await etcd.leader();
        await new Mutex(cluster, "asked").withLock(() => undefined);
      }
    };

    await servers.trust(both);
    await restartAll();
    expect(told()).toEqual([]);
    // One of two files that belong together is there, the other not yet.
    await writeFile(mine.cert, fresh.issue("client").certificate);
    await restartAll();
    expect(told()).toEqual([expect.stringContaining("to be a certificate and its key")]);
    await mine.trust(both);
    await servers.exchange(fresh);
    await mine.exchange(fresh);
    await restartAll();
    expect(told().slice(1)).toEqual([undefined]);
    await servers.trust(fresh.certificate);
    await mine.trust(fresh.certificate);
    await restartAll();

    expect(locks.filter(({ held }) => !held)).toEqual([]);
    expect(await Promise.allSettled(locks.map((lock) => lock.release()))).toEqual(
      locks.map(() => ({ status: "fulfilled", value: undefined })),
    );
  },
);
