import { expect, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";

const LOCKS = 200;

test("all members are exchanged, one after the other, under 200 locks", { timeout: 240_000 }, async () => {
  const authority = makeAuthority("our authority");
  const files = await writeServerFiles(authority, authority.issue("etcd"));
  await using etcd = await startEtcd({
    members: 3,
    clientTls: files,
    args: ["--strict-reconfig-check=false"],
  });
  const credentials = { rootCertificate: authority.certificate };
  await using cluster = connect({ hosts: etcd.endpoints, credentials, followMembers: true });
  const locks = await Promise.all(
    Array.from({ length: LOCKS }, (_, n) => new Mutex(cluster, `kept/${n}`).lock()),
  );

  for (const old of etcd.members) {
    const added = await etcd.addMember();
    // By the list that a connection begins with, or by that of every 10 s.
    const url = new RegExp(`:${added.clientPort}$`);
    await expect.poll(() => cluster.hosts, { timeout: 60_000 }).toContainEqual(expect.stringMatching(url));
    await etcd.removeMember(old);
    await new Mutex(cluster, "asked").withLock(() => undefined);
  }

  expect(etcd.members.filter(({ running }) => running)).toEqual([]);
  expect(locks.filter(({ held }) => !held)).toEqual([]);
  await Promise.all(locks.map((lock) => lock.release()));
  await files.remove();
});
