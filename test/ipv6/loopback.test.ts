// An etcd that listens on [::1] only, by its address and by a name that also has an IPv4 address.
import { afterAll, beforeAll, beforeEach, describe, expect, type MockInstance, test, vi } from "vitest";
import { connect, type ConnectOptions, Mutex } from "../../src/index.js";
import { leasesOf, placesOf } from "../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../support/fixtures/certificates.js";

const NAME = "etcd.example";
const FAMILIES = { ipv4: { address: "127.0.0.1", family: 4 }, ipv6: { address: "::1", family: 6 } };
const ORDERS = [
  { first: "IPv4", addresses: [FAMILIES.ipv4, FAMILIES.ipv6] },
  { first: "IPv6", addresses: [FAMILIES.ipv6, FAMILIES.ipv4] },
];

// Whether a machine's localhost has one family or both depends on its hosts file.
const lookup = vi.spyOn(process.getBuiltinModule("node:dns"), "lookup") as MockInstance;

const authority = makeAuthority("our authority");
let files: Awaited<ReturnType<typeof writeServerFiles>>;
let etcd: EtcdCluster;
let secure: EtcdCluster;

const place = () => ({ host: "[::1]", within: [], doors: [] });

beforeAll(async () => {
  files = await writeServerFiles(authority, authority.issue("etcd", ["::1"]));
  [etcd, secure] = await Promise.all([startEtcd({ place }), startEtcd({ place, clientTls: files })]);
}, 60_000);
afterAll(async () => {
  await Promise.all([etcd?.stop(), secure?.stop()]);
  await files?.remove();
});
beforeEach(() => void lookup.mockReset());

/** A holder and a waiter: calls and streams. */
async function expectLocks(options: ConnectOptions, member: EtcdCluster["member"]) {
  const leases = await leasesOf(member);
  {
    await using cluster = connect(options);
    const mutex = new Mutex(cluster, "jobs");
    const lock = await mutex.lock();
    const waiting = mutex.lock();
    await expect.poll(() => placesOf(member, "jobs")).toHaveLength(2);
    await lock.release();
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  }
  expect(await placesOf(member, "jobs")).toEqual([]);
  expect(await leasesOf(member)).toEqual(leases);
}

describe("an etcd on [::1]", () => {
  test.each(["http2", "etcd3"] as const)(
    "serves a holder and a waiter by its address, with the transport %s",
    async (transport) => {
      expect(etcd.member.endpoint).toMatch(/^http:\/\/\[::1\]:\d+$/);
      await expectLocks({ hosts: etcd.endpoints, transport }, etcd.member);
    },
  );

  test("serves them over TLS by its address, which its certificate contains", async () => {
    expect(secure.member.endpoint).toMatch(/^https:\/\/\[::1\]:\d+$/);
    const credentials = { rootCertificate: authority.certificate };
    await expectLocks({ hosts: secure.endpoints, credentials, transport: "http2" }, secure.member);
  });

  describe.each(ORDERS)("by a name whose first address is of $first", ({ addresses }) => {
    test("serves them, although nothing listens on the IPv4 address", async () => {
      lookup.mockImplementation((_name, _options, callback: (...found: unknown[]) => void) =>
        callback(null, addresses),
      );
      const hosts = `http://${NAME}:${etcd.member.clientPort}`;

      await expectLocks({ hosts, transport: "http2" }, etcd.member);

      expect(lookup).toHaveBeenCalledWith(NAME, expect.anything(), expect.anything());
    });
  });
});
