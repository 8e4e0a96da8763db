import { describe, expect, test } from "vitest";
import { connect } from "../../../../src/index.js";
import { checkOptions, suggestions } from "../../../../src/base/options/check.js";
import { thrown } from "../../../support/fixtures/misuse.js";

const CONNECT = [
  ...["hosts", "credentials", "auth", "requestTimeoutMs", "session", "log"],
  ...["transport", "pingIntervalMs", "pingTimeoutMs", "connectTimeoutMs"],
];
const CREDENTIALS = ["rootCertificate", "privateKey", "certChain", "serverName"];
const WAIT = ["signal", "timeoutMs", "reentrant"];
const SESSION = ["ttlSeconds", "owner"];
const LOCK = ["label", "maxHoldMs", "maxHoldGraceMs", "warnHoldMs"];

const typos: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ["host", CONNECT, ["hosts"]],
  ["HOSTS", CONNECT, ["hosts"]],
  ["hsots", CONNECT, ["hosts"]],
  ["credential", CONNECT, ["credentials"]],
  ["crednetials", CONNECT, ["credentials"]],
  ["request_timeout_ms", CONNECT, ["requestTimeoutMs"]],
  ["requestTimeout", CONNECT, ["requestTimeoutMs"]],
  ["requstTimeoutMS", CONNECT, ["requestTimeoutMs"]],
  ["timeout", CONNECT, ["requestTimeoutMs", "pingTimeoutMs", "connectTimeoutMs"]],
  ["logger", CONNECT, ["log"]],
  ["endpoints", CONNECT, []],
  ["retries", CONNECT, []],
  ["timeout", WAIT, ["timeoutMs"]],
  ["timeoutSeconds", WAIT, ["timeoutMs"]],
  ["timeOutMs", WAIT, ["timeoutMs"]],
  ["timeuotMs", WAIT, ["timeoutMs"]],
  ["singal", WAIT, ["signal"]],
  ["abortSignal", WAIT, ["signal"]],
  ["reentrent", WAIT, ["reentrant"]],
  ["ttl", SESSION, ["ttlSeconds"]],
  ["ttlMs", SESSION, ["ttlSeconds"]],
  ["ttlSecs", SESSION, ["ttlSeconds"]],
  ["onwer", SESSION, ["owner"]],
  ["name", SESSION, []],
  ["cert", CREDENTIALS, ["certChain"]],
  ["key", CREDENTIALS, ["privateKey"]],
  ["ca", CREDENTIALS, []],
  ["servername", CREDENTIALS, ["serverName"]],
  ["maxHold", LOCK, ["maxHoldMs"]],
  ["maxHoldGrace", LOCK, ["maxHoldGraceMs"]],
  ["lable", LOCK, ["label"]],
  ["drain", ["drainMs"], ["drainMs"]],
  ["x", ["drainMs"], []],
  ["", CONNECT, []],
];

describe("the name of an unknown option", () => {
  test.each(typos)("%s of %j suggests %j", (option, known, expected) => {
    expect(suggestions(option, known)).toEqual(expected);
  });

  test("is told with the near one, and with all that are known", () => {
    expect((thrown(() => connect({ host: "a:1" } as never)) as Error).message).toMatch(
      /^Unknown option host of connect: did you mean hosts\? \(known: hosts, followMembers, guardian, renewal, maxStallMs, prefix, credentials, .*\)$/,
    );
    expect((thrown(() => checkOptions("f", { timeout: 1 }, CONNECT)) as Error).message).toMatch(
      /did you mean requestTimeoutMs, pingTimeoutMs or connectTimeoutMs\?/,
    );
  });

  test("that is near to none is told with all that are known, and with no guess", () => {
    expect((thrown(() => checkOptions("f", { retries: 1 }, WAIT)) as Error).message).toBe(
      "Unknown option retries of f (known: signal, timeoutMs, reentrant)",
    );
    expect((thrown(() => checkOptions("f", { retries: 1 }, [])) as Error).message).toBe(
      "Unknown option retries of f: it takes none",
    );
  });
});
