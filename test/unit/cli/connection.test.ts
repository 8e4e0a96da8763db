import { describe, expect, test } from "vitest";
import { connectionOf } from "../../../src/cli/command-line/connection.js";
import { cliErrorOf, EXIT } from "../../../src/cli/command-line/exit.js";
import { EtcdUnavailableError, KindMismatchError, LockTimeoutError } from "../../../src/index.js";

describe("the connection of a command", () => {
  test.each([
    [{}, {}, { hosts: ["http://127.0.0.1:2379"] }],
    [{ endpoints: "a:1,b:2/" }, {}, { hosts: ["http://a:1", "http://b:2"] }],
    [{ endpoints: "http://a:1/ , b" }, {}, { hosts: ["http://a:1", "http://b:2379"] }],
    [{}, { ETCDCTL_ENDPOINTS: "c:3" }, { hosts: ["http://c:3"] }],
    [{ endpoints: "a:1" }, { ETCDCTL_ENDPOINTS: "c:3" }, { hosts: ["http://a:1"] }],
    [{}, { ETCDCTL_ENDPOINTS: "" }, { hosts: ["http://127.0.0.1:2379"] }],
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

  test("uses TLS when there is a certificate, and the system's authorities when none are given", () => {
    expect(connectionOf({ endpoints: "a:1", cacert: "/dev/null" }, {}).hosts).toEqual(["https://a:1"]);
    const { credentials } = connectionOf({ endpoints: "https://a:1" }, {});
    expect(Buffer.from(credentials!.rootCertificate).toString()).toContain("-----BEGIN CERTIFICATE-----");
  });

  test.each([
    [{ user: "root" }, "--user without a password"],
    [{ password: "secret" }, "--password without --user"],
    [{ endpoints: "https://a:1", cert: "/dev/null" }, "--cert and --key belong together"],
    [{ endpoints: " , " }, "--endpoints names no member"],
    [{ endpoints: "a:1", cacert: "/does/not/exist" }, "--cacert: ENOENT"],
  ])("of %j is refused", (flags, message) => {
    expect(() => connectionOf(flags, {})).toThrow(message);
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
