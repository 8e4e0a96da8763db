import { describe, expect, onTestFinished, test } from "vitest";
import { connectionOf } from "../../../../src/tools/cli/arguments.js";
import { cliErrorOf, EXIT } from "../../../../src/tools/cli/io.js";
import {
  type Credentials,
  EtcdUnavailableError,
  KindMismatchError,
  LockTimeoutError,
} from "../../../../src/index.js";
import { makeAuthority, writeServerFiles } from "../../../support/fixtures/certificates.js";
import { thrown } from "../../../support/fixtures/misuse.js";

describe("the connection of a command", () => {
  test.each([
    [{}, {}, { hosts: ["http://127.0.0.1:2379"] }],
    [{ endpoints: "a:1,b:2/" }, {}, { hosts: ["http://a:1", "http://b:2"] }],
    [{ endpoints: "http://a:1/ , b" }, {}, { hosts: ["http://a:1", "http://b:2379"] }],
    [{}, { ETCDCTL_ENDPOINTS: "c:3" }, { hosts: ["http://c:3"] }],
    [{ endpoints: "a:1" }, { ETCDCTL_ENDPOINTS: "c:3" }, { hosts: ["http://a:1"] }],
    [{}, { ETCDCTL_ENDPOINTS: "" }, { hosts: ["http://127.0.0.1:2379"] }],
    [{ endpoints: "a:1,http://A:1/" }, {}, { hosts: ["http://a:1"] }],
    [
      { endpoints: "a:1", user: "root:se:cret" },
      { ETCDCTL_PASSWORD: "other" },
      { hosts: ["http://a:1"], auth: { username: "root", password: "se:cret" } },
    ],
    [
      { endpoints: "a:1" },
      { ETCDCTL_USER: "root", ETCDCTL_PASSWORD: "pw" },
      { hosts: ["http://a:1"], auth: { username: "root", password: "pw" } },
    ],
  ])("of %j and %j", (flags, env, expected) => {
    expect(connectionOf(flags, env)).toEqual(expected);
  });

  test("uses TLS when there is a certificate, and the system's authorities when none are given", async () => {
    const authority = makeAuthority("our authority");
    const files = await writeServerFiles(authority, authority.issue("a client"));
    onTestFinished(files.remove);
    expect(connectionOf({ endpoints: "a:1", cacert: files.ca }, {}).hosts).toEqual(["https://a:1"]);
    const { credentials } = connectionOf({ endpoints: "https://a:1" }, {});
    expect(Buffer.from((credentials as Credentials).rootCertificate).toString()).toContain(
      "-----BEGIN CERTIFICATE-----",
    );
  });

  test.each([
    [
      { user: "root" },
      {},
      "Expected --user to be NAME:PASSWORD, or together with --password, got a name only",
    ],
    [{ password: "secret" }, {}, "Expected --password together with --user, which is not set"],
    [{}, { ETCDCTL_PASSWORD: "x" }, "Expected ETCDCTL_PASSWORD together with --user, which is not set"],
    [
      { endpoints: "https://a:1", cert: "/c.pem" },
      {},
      "Expected --cert together with --key, which is not set",
    ],
    [
      { endpoints: "http://a:1", cacert: "/c.pem" },
      {},
      'Expected --endpoints to be https://, or without a scheme, together with --cacert, got "http://a:1"',
    ],
    [
      { endpoints: "http://a:1" },
      { ETCDCTL_CERT: "/c.pem", ETCDCTL_KEY: "/k.pem" },
      "Expected --endpoints to be https://, or without a scheme, together with ETCDCTL_CERT",
    ],
    [{}, { ETCDCTL_DISCOVERY_SRV: "a b" }, "Expected ETCDCTL_DISCOVERY_SRV to be a domain"],
    [{ endpoints: " , " }, {}, "Expected --endpoints to be"],
    [{ endpoints: "a:1,b:x" }, {}, 'got "b:x"'],
    [{}, { ETCDCTL_ENDPOINTS: "http://u:secret@b:1" }, "Expected ETCDCTL_ENDPOINTS to be without a user"],
    [
      { endpoints: "a:1", cacert: "/does/not/exist" },
      {},
      'Expected --cacert to be a file that can be read, got "/does/not/exist": ENOENT',
    ],
    [{ endpoints: "a:1", cacert: "/dev/null" }, {}, "Expected the file of --cacert to be PEM text"],
  ])("of %j and %j is refused", (flags, env, message) => {
    const error = thrown(() => connectionOf(flags, env));

    expect((error as Error).message).toContain(message);
    expect((error as Error).message).not.toContain("secret");
    expect(cliErrorOf(error).exitCode).toBe(EXIT.usage);
  });
});

describe("an error of the library", () => {
  test.each([
    [new EtcdUnavailableError("open a session", new Map()), EXIT.unavailable],
    [new LockTimeoutError("a", 10, undefined, undefined), EXIT.timedOut],
    [new KindMismatchError({ name: "a", kind: "mutex" }, { name: "a", kind: "permit" }, "a/77"), EXIT.usage],
    [new RangeError("Expected name to be 1..1024 bytes, got 0"), EXIT.usage],
    [new TypeError("undefined is not a function"), EXIT.internal],
  ])("%s has its exit code", (error, code) => {
    expect(cliErrorOf(error).exitCode).toBe(code);
  });
});
