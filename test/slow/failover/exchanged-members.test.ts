import dns from "node:dns/promises";
import { expect, onTestFinished, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { DnsServer } from "../../support/servers/dns.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";

const LOCKS = 200;

test(
  "all members, which DNS has named, are exchanged, one after the other, under 200 locks",
  { timeout: 240_000 },
  async () => {
    const authority = makeAuthority("our authority");
    const files = await writeServerFiles(authority, authority.issue("etcd"));
    await using etcd = await startEtcd({
      members: 3,
      clientTls: files,
      args: ["--strict-reconfig-check=false"],
    });
    const server = await new DnsServer().listen();
    const before = dns.getServers();
    dns.setServers([server.address]);
    onTestFinished(() => {
      dns.setServers(before);
      server.close();
    });
    const records = etcd.members.map(({ clientPort: port }) => ({ name: "localhost", port }));
    server.records.set("_etcd-client-ssl._tcp.etcd.test", records);
    const credentials = { rootCertificate: authority.certificate };
    await using cluster = connect({
      hosts: "srv:etcd.test",
      ...{ transport: "http2", credentials, followMembers: true },
    });
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
  },
);
