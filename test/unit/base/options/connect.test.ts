import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { connect } from "../../../../src/index.js";
import {
  BAD_SESSIONS,
  expectMisuse,
  NO_OBJECTS,
  outOfRange,
  thrown,
  titled,
  wrongType,
} from "../../../support/fixtures/misuse.js";

const HOSTS = "127.0.0.1:2379";
const HOSTS_RULE = '"host:port" or "http(s)://host:port", or several';
const TIMEOUT_RULE = "a whole number from 100 to 60000";
const connecting = (options: unknown) => () => connect(options as Parameters<typeof connect>[0]);
const pem = (text: string) =>
  Buffer.from(`-----BEGIN CERTIFICATE-----\n${text}\n-----END CERTIFICATE-----\n`);

const badHosts = [
  wrongType("hosts", HOSTS_RULE, undefined),
  wrongType("hosts", HOSTS_RULE, null),
  wrongType("hosts", HOSTS_RULE, 2379),
  wrongType("hosts", HOSTS_RULE, {}, "an object (Object)"),
  wrongType("hosts", HOSTS_RULE, [], "an array"),
  wrongType("hosts", HOSTS_RULE, [HOSTS, 7], "7"),
  outOfRange("hosts", HOSTS_RULE, "", '""'),
  outOfRange("hosts", HOSTS_RULE, "ftp://localhost:2379", '"ftp://localhost:2379"'),
  outOfRange("hosts", "a port from 1 to 65535", "localhost:65536", '"localhost:65536"'),
  outOfRange("hosts", "a port from 1 to 65535", "localhost:0", '"localhost:0"'),
  outOfRange("hosts", "all https:// or none", ["https://a:1", "http://b:1"], '"https://a:1, http://b:1"'),
];

const PREFIX_RULE = 'a string that ends with "/"';
const PREFIX_LENGTH = "at most 256 bytes of well-formed Unicode";
const badPrefixes = [
  ...[null, 7].map((value) => wrongType("prefix", PREFIX_RULE, value)),
  wrongType("prefix", PREFIX_RULE, ["prod/"], "an array"),
  ...["", "prod", "/prod"].map((value) => outOfRange("prefix", PREFIX_RULE, value, `"${value}"`)),
  ...["//", "a//b/", "a//"].map((value) => outOfRange("prefix", 'free of "//"', value, `"${value}"`)),
  outOfRange("prefix", 'outside of "/leasehold/"', "/leasehold/once/", '"/leasehold/once/"'),
  outOfRange("prefix", PREFIX_LENGTH, "\ud800/", '"\\ud800/"'),
  outOfRange("prefix", PREFIX_LENGTH, `${"é".repeat(128)}/`, `"${"é".repeat(60)}…"`),
];

const badRest = [
  ...[99, 60_001, 100.5, NaN, Infinity].map((value) => outOfRange("requestTimeoutMs", TIMEOUT_RULE, value)),
  wrongType("requestTimeoutMs", TIMEOUT_RULE, "2000", '"2000"'),
  wrongType("requestTimeoutMs", TIMEOUT_RULE, null),
  wrongType("hosts", HOSTS_RULE, new Array(2), "undefined"),
  wrongType("auth", "an object", "root:secret", "a string"),
  wrongType("auth", "an object", ["root", "secret"], "an array"),
  wrongType("auth", "an object", null),
  wrongType("auth.username", "a non-empty string", { password: "secret" }, "undefined"),
  wrongType("auth.password", "a non-empty string", { username: "root", password: 1234 }, "a number"),
  outOfRange("auth.password", "a non-empty string", { username: "root", password: "" }, '""'),
  wrongType("credentials", "an object", "ca.pem", "a string"),
  wrongType("credentials", "an object", null),
  wrongType("credentials.rootCertificate", "PEM text: a string, a Buffer or a Uint8Array", {}, "undefined"),
  wrongType("credentials.rootCertificate", "PEM text", { rootCertificate: [1] }, "an array"),
  outOfRange(
    "credentials.rootCertificate",
    "PEM text",
    { rootCertificate: Buffer.from("MIIB") },
    "other bytes",
  ),
];

/** The option of `connect` that contains the bad value, such as `auth` for `auth.username`. */
const within = (option: string) => option.split(".")[0]!;

describe("connect", () => {
  test("tells an object whose class has a strange name as misuse", () => {
    const hosts: unknown = JSON.parse('{"constructor":{"name":{"toString":1}}}');
    expect(() => connecting({ hosts })()).toThrow(TypeError);
  });

  test.each(titled([...badHosts, ...badPrefixes, ...badRest]))("refuses %s", (_, each) => {
    expectMisuse(thrown(connecting({ hosts: HOSTS, [within(each.option)]: each.value })), each);
  });

  test.each(["prod/", "/prod/", "/", "a/b/", `${"x".repeat(255)}/`, undefined])(
    "takes the prefix %s",
    (prefix) => {
      expect(() => connecting({ hosts: HOSTS, prefix })()).not.toThrow();
    },
  );

  test.each(titled(BAD_SESSIONS))("refuses, in session, %s", (_, each) => {
    expectMisuse(thrown(connecting({ hosts: HOSTS, session: { [each.option]: each.value } })), each);
  });

  test.each(["undefined", ...NO_OBJECTS.keys()])("refuses %s instead of options", (got) => {
    const error = thrown(connecting(NO_OBJECTS.get(got)));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toBe(`Expected the options of connect to be an object, got ${got}`);
  });

  test.each([...NO_OBJECTS.keys()])("refuses %s instead of options of the session", (got) => {
    const error = thrown(connecting({ hosts: HOSTS, session: NO_OBJECTS.get(got) }));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toBe(
      `Expected the options of connect's session to be an object, got ${got}`,
    );
  });

  test.each([
    ["host", { host: HOSTS }, "hosts"],
    ["timeout", { hosts: HOSTS, timeout: 1 }, "requestTimeoutMs"],
    ["requestTimeout", { hosts: HOSTS, requestTimeout: 1 }, "requestTimeoutMs"],
    ["ttl", { hosts: HOSTS, session: { ttl: 5 } }, "ttlSeconds"],
    ["signal", { hosts: HOSTS, session: { signal: undefined } }, "ttlSeconds"],
    ["user", { hosts: HOSTS, auth: { user: "root", password: "secret" } }, "username"],
    ["pasword", { hosts: HOSTS, auth: { username: "root", pasword: "secret" } }, "password"],
    ["ca", { hosts: HOSTS, credentials: { ca: pem("x") } }, "rootCertificate"],
    ["cert", { hosts: HOSTS, credentials: { cert: pem("x") } }, "certChain"],
  ])("refuses the unknown option %s and names a known one", (option, options, known) => {
    const error = thrown(connecting(options));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain(`Unknown option ${option} of `);
    expect((error as Error).message).toContain(known);
  });

  test.each([
    ["faultHandling", /retries by itself/],
    ["defaultCallOptions", /requestTimeoutMs/],
    ["dialTimeout", /does not implement it.*requestTimeoutMs/],
    ["grpcOptions", /option etcd3.*new Etcd3\({ hosts, grpcOptions }\)/],
  ])("refuses etcd3's own option %s and says why", (option, why) => {
    const error = thrown(connecting({ hosts: HOSTS, [option]: undefined }));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain(`Option ${option} of connect is refused`);
    expect((error as Error).message).toMatch(why);
  });

  test.each([7, null, "", "127.0.0.1", "[::1]", "etcd.example:2379", "https://etcd.example", "-x", "a b"])(
    "refuses the server name %j",
    (serverName) => {
      const error = thrown(
        connecting({ hosts: HOSTS, credentials: { rootCertificate: pem("x"), serverName } }),
      );

      expect((error as Error).message).toContain("Expected credentials.serverName to be a host name");
    },
  );

  test("refuses half of a client certificate", () => {
    const rootCertificate = pem("x");

    for (const half of ["privateKey", "certChain"] as const) {
      const error = thrown(connecting({ hosts: HOSTS, credentials: { rootCertificate, [half]: pem("x") } }));
      expect(error).toBeInstanceOf(TypeError);
      expect((error as Error).message).toMatch(/privateKey and credentials.certChain together/);
    }
  });

  test("refuses credentials that OpenSSL cannot read, before anything is connected", () => {
    const error = thrown(connecting({ hosts: HOSTS, credentials: { rootCertificate: pem("nonsense") } }));

    expect(error).toBeInstanceOf(RangeError);
    expect((error as Error).message).toMatch(/Expected credentials.rootCertificate to be PEM text/);
  });

  test("refuses credentials beside http://, which would be silently ignored", () => {
    const options = { hosts: "http://localhost:2379", credentials: { rootCertificate: pem("x") } };

    expectMisuse(
      thrown(connecting(options)),
      outOfRange("hosts", "https:// when credentials are given", "", '"http://localhost:2379"'),
    );
  });

  const SECRET = "hunter2secret";
  test("shows no secret of a good cluster to whoever prints it", () => {
    const cluster = connect({ hosts: HOSTS, auth: { username: "root", password: SECRET } });

    expect(inspect(cluster, { depth: 9, showHidden: true })).not.toContain(SECRET);
    expect(JSON.stringify(cluster)).toBe(JSON.stringify({ hosts: [`http://${HOSTS}`] }));
  });

  test.each([
    ["http://localhost:2379"],
    ["http://etcd-0.etcd.svc.cluster.local:2379"],
    ["https://10.0.0.1:2379"],
    ["http://[::1]:2379"],
    [["http://a:1", "http://b:65535"]],
  ])("takes %s, and undefined for everything else", (hosts) => {
    const options = {
      credentials: undefined,
      auth: undefined,
      transport: undefined,
      pingIntervalMs: undefined,
      pingTimeoutMs: undefined,
      connectTimeoutMs: undefined,
      requestTimeoutMs: undefined,
    };

    const cluster = connect({ hosts, ...options, session: { ttlSeconds: undefined, owner: undefined } });

    expect(cluster.hosts).toEqual([hosts].flat());
  });
});
