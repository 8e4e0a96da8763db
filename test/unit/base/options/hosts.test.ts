import { describe, expect, test } from "vitest";
import { connect } from "../../../../src/index.js";
import { checkConnect } from "../../../../src/base/options/connect.js";
import { makeAuthority } from "../../../support/fixtures/certificates.js";
import { expectMisuse, outOfRange, thrown, titled } from "../../../support/fixtures/misuse.js";

const RULE = '"host:port" or "http(s)://host:port", or several';
const { certificate: rootCertificate } = makeAuthority("our authority");

const accepted: readonly (readonly [string | string[], string[]])[] = [
  ["a:1", ["http://a:1"]],
  ["a:1,b:2", ["http://a:1", "http://b:2"]],
  [" a:1 , b:2\n", ["http://a:1", "http://b:2"]],
  ["http://a:1/, http://b:2//", ["http://a:1", "http://b:2"]],
  ["a:1,,b:2,", ["http://a:1", "http://b:2"]],
  ["localhost", ["http://localhost:2379"]],
  ["https://etcd.example/", ["https://etcd.example:2379"]],
  ["[::1]:2379, [fe80::1]", ["http://[::1]:2379", "http://[fe80::1]:2379"]],
  ["HTTP://Etcd-0:02379", ["http://etcd-0:2379"]],
  ["a:1,http://a:1/,A:1", ["http://a:1"]],
  ["unix:/run/Etcd.sock,unix:///run/Etcd.sock", ["unix:///run/Etcd.sock"]],
  [
    ["a:1,b:2", "http://c:3/"],
    ["http://a:1", "http://b:2", "http://c:3"],
  ],
  ["unix:/a, http://b:2", ["unix:///a", "http://b:2"]],
  [
    ["unix:/a,b.sock", "unix:/c , unix:/d,e, http://b:2"],
    ["unix:///a,b.sock", "unix:///c", "unix:///d,e", "http://b:2"],
  ],
];

test("the hosts of DNS are named by the service that etcd's members have, with TLS or without", () => {
  const hostsOf = (hosts: string, credentials?: { rootCertificate: Buffer }) =>
    checkConnect({ hosts, credentials }).hosts;

  expect(hostsOf("srv:Example.com")).toEqual(["srv:_etcd-client._tcp.example.com"]);
  expect(hostsOf("srv:example.com", { rootCertificate })).toEqual(["srv:_etcd-client-ssl._tcp.example.com"]);
  expect(hostsOf("srv:_etcd-client-a._tcp.b")).toEqual(["srv:_etcd-client-a._tcp.b"]);
});

test.each([
  ["hosts", { hosts: "srv:a", transport: "etcd3" }],
  ["hosts", { hosts: "unix:/a", transport: "etcd3" }],
  ["followMembers", { hosts: "a", followMembers: true, transport: "etcd3" }],
  ["followMembers", { hosts: "memory://a", followMembers: true }],
  ["followMembers", { hosts: "a", followMembers: 1 }],
])("%s is refused in %j", (option, options) => {
  expect((thrown(() => checkConnect(options)) as Error).message).toMatch(
    new RegExp(`^(?:Expected ${option} to be|Option ${option} cannot be used) `),
  );
});

describe("hosts", () => {
  test.each(accepted)("%j are normalized", (hosts, normal) => {
    const cluster = connect({ hosts });

    expect(cluster.hosts).toEqual(normal);
    expect(cluster.hosts).toSatisfy(Object.isFrozen);
  });

  test("without a scheme are reached by TLS if there are credentials", () => {
    const cluster = connect({ hosts: "a:1, https://b:2", credentials: { rootCertificate } });

    expect(cluster.hosts).toEqual(["https://a:1", "https://b:2"]);
  });

  test.each(
    titled([
      outOfRange("hosts", "addresses without a path or a query", "http://a:1/v3", '"http://a:1/v3"'),
      outOfRange("hosts", "addresses without a path or a query", "b:1,a:1?x", '"a:1?x"'),
      outOfRange("hosts", "addresses without a path or a query", "a:1/#/", '"a:1/#/"'),
      outOfRange("hosts", "a port from 1 to 65535", "a:1,b:65536", '"b:65536"'),
      outOfRange("hosts", RULE, "a:1,b:http", '"b:http"'),
      outOfRange("hosts", RULE, "a:", '"a:"'),
      outOfRange("hosts", RULE, ":2379", '":2379"'),
      outOfRange("hosts", "a domain after srv:", "srv:", '"srv:"'),
      outOfRange("hosts", "a domain after srv:", "srv:a b", '"srv:a b"'),
      outOfRange("hosts", "one srv: host", "srv:a,b:1", '"srv:_etcd-client._tcp.a, http://b:1"'),
      outOfRange("hosts", "an absolute path after unix:", "unix:etcd", '"unix:etcd"'),
      outOfRange("hosts", "an absolute path after unix:", "unix://localhost:1", '"unix://localhost:1"'),
      outOfRange("hosts", "an array if the path of a socket contains a comma", "unix:/a,b", '"unix:/a,b"'),
      outOfRange(
        "hosts",
        "http:// before the host that follows a socket",
        "unix:/a,b:2379",
        '"unix:/a,b:2379"',
      ),
      outOfRange("hosts", "at most 107 bytes", `unix:/${"a".repeat(107)}`, `"unix:/aaa`),
      outOfRange("hosts", "all https:// or none", "https://a:1,unix:/a", '"https://a:1, unix:///a"'),
      outOfRange("hosts", RULE, "a:1;b:1", '"a:1;b:1"'),
      outOfRange("hosts", RULE, "a:1 b:1", '"a:1 b:1"'),
      outOfRange("hosts", RULE, " , ", '" , "'),
      outOfRange("hosts", RULE, ["a:1", ""], '""'),
      outOfRange("hosts", RULE, "[::zz]:1", '"[::zz]:1"'),
      outOfRange("hosts", 'an IPv6 address in brackets: "[::1]:2379"', "::1", '"::1"'),
      outOfRange("hosts", "all https:// or none", "https://a:1,b:1", '"https://a:1, http://b:1"'),
    ]),
  )("are refused: %s", (_, each) => {
    expectMisuse(
      thrown(() => connect({ hosts: each.value as string })),
      each,
    );
  });

  test.each(["http://root:hunter2@a:1", "a:1,root:hunter2@b:1", "http://root:x,hunter2@a:1", "x@hunter2@a"])(
    "with a user and a password, %s, are refused, and no part of the password is shown",
    (hosts) => {
      const { message } = thrown(() => connect({ hosts })) as Error;

      expect(message).toContain("Expected hosts to be without a user and a password (give auth instead)");
      expect(message).not.toMatch(/hunter2|root:x/);
    },
  );
});
