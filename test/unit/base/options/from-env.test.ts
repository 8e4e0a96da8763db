import { writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { connect, type Credentials, fromEnv } from "../../../../src/index.js";
import { makeAuthority, writeServerFiles } from "../../../support/fixtures/certificates.js";
import { thrown } from "../../../support/fixtures/misuse.js";

const authority = makeAuthority("our authority");
const client = authority.issue("a client");
let files: Awaited<ReturnType<typeof writeServerFiles>>;
beforeAll(async () => void (files = await writeServerFiles(authority, client)));
afterAll(() => files.remove());

describe("fromEnv()", () => {
  test("has etcdctl's default without variables", () => {
    expect(fromEnv({})).toEqual({ hosts: ["http://127.0.0.1:2379"] });
    expect(fromEnv({ ETCDCTL_ENDPOINTS: "", ETCDCTL_USER: "" })).toEqual(fromEnv({}));
  });

  test("reads the environment of the process unless it gets another one", () => {
    vi.stubEnv("ETCDCTL_ENDPOINTS", "http://a:1/, b");
    try {
      expect(fromEnv()).toEqual({ hosts: ["http://a:1", "http://b:2379"] });
    } finally {
      vi.unstubAllEnvs();
    }
  });

  test("reads the certificates' files, and reaches endpoints without a scheme by TLS then", () => {
    const { ca, cert, key } = files;
    const env = { ETCDCTL_ENDPOINTS: "a:1", ETCDCTL_CACERT: ca, ETCDCTL_CERT: cert, ETCDCTL_KEY: key };

    const { hosts, credentials } = fromEnv(env);
    expect(hosts).toEqual(["https://a:1"]);
    expect((credentials as () => Credentials)()).toEqual({
      rootCertificate: authority.certificate,
      certChain: client.certificate,
      privateKey: client.key,
    });
  });

  test("takes the members from DNS if ETCDCTL_DISCOVERY_SRV is set, as etcdctl does", () => {
    const hostsOf = (env: NodeJS.ProcessEnv) =>
      fromEnv({ ETCDCTL_ENDPOINTS: "a:1", ETCDCTL_DISCOVERY_SRV: "Example.org", ...env }).hosts;

    expect(hostsOf({})).toEqual(["srv:_etcd-client._tcp.example.org"]);
    expect(hostsOf({ ETCDCTL_CACERT: files.ca })).toEqual(["srv:_etcd-client-ssl._tcp.example.org"]);
    expect(hostsOf({ ETCDCTL_CACERT: files.ca, ETCDCTL_DISCOVERY_SRV_NAME: "foo" })).toEqual([
      "srv:_etcd-client-ssl-foo._tcp.example.org",
    ]);
  });

  test("reads the certificates' files again for each connection", async () => {
    const mine = await writeServerFiles(authority, client);
    onTestFinished(() => mine.remove());
    const env = { ETCDCTL_ENDPOINTS: "a:1", ETCDCTL_CACERT: mine.ca };
    const read = fromEnv(env).credentials as () => Credentials;
    const other = makeAuthority("another authority");

    await writeFile(mine.ca, other.certificate);

    expect(read()).toEqual({ rootCertificate: other.certificate });
    await writeFile(mine.ca, "");
    expect(thrown(read)).toBeInstanceOf(RangeError);
  });

  test("takes the password from ETCDCTL_USER, after its first colon, or else from ETCDCTL_PASSWORD", () => {
    const authOf = (env: NodeJS.ProcessEnv) => fromEnv(env).auth;

    expect(authOf({ ETCDCTL_USER: "root:a:b", ETCDCTL_PASSWORD: "c" })).toEqual({
      username: "root",
      password: "a:b",
    });
    expect(authOf({ ETCDCTL_USER: "root", ETCDCTL_PASSWORD: "c" })).toEqual({
      username: "root",
      password: "c",
    });
  });

  test("returns options for connect(), to which others can be added", () => {
    const cluster = connect({ ...fromEnv({ ETCDCTL_ENDPOINTS: "a:1,b:2" }), requestTimeoutMs: 500 });

    expect(cluster.hosts).toEqual(["http://a:1", "http://b:2"]);
  });

  test.each<[NodeJS.ProcessEnv, string]>([
    [{ ETCDCTL_ENDPOINTS: "a:1,b:x" }, 'Expected ETCDCTL_ENDPOINTS to be "host:port"'],
    [
      { ETCDCTL_ENDPOINTS: "a:1/v3" },
      'Expected ETCDCTL_ENDPOINTS to be addresses without a path or a query, got "a:1/v3"',
    ],
    [{ ETCDCTL_ENDPOINTS: "a:1,https://b:1" }, "Expected ETCDCTL_ENDPOINTS to be all https:// or none"],
    [
      { ETCDCTL_ENDPOINTS: "http://a:1", ETCDCTL_CACERT: "/no/ca" },
      'Expected ETCDCTL_ENDPOINTS to be https://, or without a scheme, together with ETCDCTL_CACERT, got "http://a:1"',
    ],
    [
      { ETCDCTL_ENDPOINTS: "http://a:1", ETCDCTL_CERT: "/no/cert", ETCDCTL_KEY: "/no/key" },
      "to be https://, or without a scheme, together with ETCDCTL_CERT",
    ],
    [{ ETCDCTL_DISCOVERY_SRV: "a b" }, "Expected ETCDCTL_DISCOVERY_SRV to be a domain after srv:"],
    [{ ETCDCTL_ENDPOINTS: "u:s3cret@a:1" }, "Expected ETCDCTL_ENDPOINTS to be without a user and a password"],
    [
      { ETCDCTL_CACERT: "/no/ca" },
      'Expected ETCDCTL_CACERT to be a file that can be read, got "/no/ca": ENOENT',
    ],
    [{ ETCDCTL_CACERT: "/dev/null" }, "Expected the file of ETCDCTL_CACERT to be PEM text, got other bytes"],
    [{ ETCDCTL_KEY: "/k.pem" }, "Expected ETCDCTL_KEY together with ETCDCTL_CERT, which is not set"],
    [{ ETCDCTL_CERT: "/c.pem" }, "Expected ETCDCTL_CERT together with ETCDCTL_KEY, which is not set"],
    [
      { ETCDCTL_USER: "s3cret" },
      "Expected ETCDCTL_USER to be NAME:PASSWORD, or together with ETCDCTL_PASSWORD",
    ],
    [
      { ETCDCTL_PASSWORD: "s3cret" },
      "Expected ETCDCTL_PASSWORD together with ETCDCTL_USER, which is not set",
    ],
  ])("refuses %j, and names the variable and the rule", (env, message) => {
    const error = thrown(() => fromEnv(env)) as Error;

    expect(error).toBeInstanceOf(RangeError);
    expect(error.message).toContain(message);
    expect(error.message).not.toContain("s3cret");
  });

  test("refuses a variable that is no text", () => {
    const env = { ETCDCTL_ENDPOINTS: 7, ETCDCTL_USER: ["root:s3cret"] } as never;

    expect(thrown(() => fromEnv(env))).toBeInstanceOf(TypeError);
    expect((thrown(() => fromEnv(env)) as Error).message).not.toContain("s3cret");
  });

  test.each([null, "ETCDCTL", [], 7])("refuses %j in place of an environment", (env) => {
    expect(thrown(() => fromEnv(env as never))).toBeInstanceOf(TypeError);
  });
});
