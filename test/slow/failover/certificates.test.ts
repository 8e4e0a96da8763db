// Members whose certificates a client does not trust, in a list with members that it does.
import { expect, onTestFinished, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { startTlsFront } from "../../support/proxies/tls-front.js";

const TTL_SECONDS = 5;
/** One of two hosts is chosen at random first: this many clusters cover each case. */
const CLUSTERS = 12;
const authority = makeAuthority("ours");
const next = makeAuthority("ours, from today");
const stranger = makeAuthority("somebody else's");

async function secure(issuer: ReturnType<typeof makeAuthority>) {
  const files = await writeServerFiles(issuer, issuer.issue("etcd"));
  onTestFinished(() => files.remove());
  return startEtcd({ clientTls: { ...files, clientCertAuth: false } });
}

test("a certificate that one member lost does not reject a call", async () => {
  const [good, wrong] = await Promise.all([secure(authority), secure(stranger)]);
  const credentials = { rootCertificate: authority.certificate };
  const session = { ttlSeconds: TTL_SECONDS };
  const clusters = Array.from({ length: CLUSTERS }, () =>
    connect({ hosts: [wrong.member.endpoint, good.member.endpoint], credentials, session }),
  );

  for (const cluster of clusters) await (await new Mutex(cluster, "certificates").lock()).release();

  await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  await Promise.all([good.stop(), wrong.stop()]);
});

test("certificates exchanged member by member reject no lock, whoever trusts the old authority only, or both", async () => {
  const members = await startEtcd({ members: 3 });
  const fronts = await Promise.all(
    members.members.map(({ clientPort }) => startTlsFront(() => clientPort, authority.issue("etcd"))),
  );
  // From Node.js 26 on, TLS works only with host names.
  const hosts = fronts.map(({ port }) => `https://localhost:${port}`);
  const session = { ttlSeconds: TTL_SECONDS };
  const both = Buffer.concat([Buffer.from(authority.certificate), Buffer.from(next.certificate)]);
  const clusters = [authority.certificate, both].map((rootCertificate) =>
    connect({ hosts, credentials: { rootCertificate }, session }),
  );
  let rounds = 0;
  const round = async () => {
    for (const cluster of clusters) await (await new Mutex(cluster, "exchanged").lock()).release();
    rounds++;
  };
  await round();
  let exchanged = false;
  const locking = (async () => {
    while (!exchanged) await round();
  })();

  // In the end, a client that trusts only the old authority has one member left.
  for (const front of fronts.slice(0, 2)) {
    front.show(next.issue("etcd"));
    front.cut();
    const before = rounds;
    await Promise.race([locking, expect.poll(() => rounds).toBeGreaterThan(before + 2)]);
  }
  exchanged = true;
  await locking;

  await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  await Promise.all([members.stop(), ...fronts.map((front) => front.stop())]);
}, 90_000);
