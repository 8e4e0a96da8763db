import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../../src/errors.js";
import {
  LeaseNotFoundError,
  MemberRefusedError,
  OverloadedError,
  UnansweredError,
} from "../../../../src/etcd/port.js";
import { certificateFailure, statusFailure, verdictOf } from "../../../../src/etcd/refusals.js";

const RESOURCE_EXHAUSTED = 8;
const UNIMPLEMENTED = 12;
const UNAVAILABLE = 14;

describe("etcd's words", () => {
  test.each([
    "etcdserver: permission denied",
    "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
    " etcdserver: permission denied\n",
  ])("%j are recognized", (details) => {
    expect(verdictOf(details)).toBe("permission");
  });

  test.each([
    "permission denied",
    "upstream said etcdserver: permission denied",
    "etcdserver: permission denied for you",
  ])("%j are not etcd's", (details) => {
    expect(verdictOf(details)).toBeUndefined();
  });
});

describe("a status that a server has sent", () => {
  test.each([
    ["etcdserver: requested lease not found", LeaseNotFoundError],
    ["etcdserver: too many requests", OverloadedError],
    ["etcdserver: request is too large", EtcdRefusedError],
  ])("with %j is etcd's verdict, whatever its code", (details, kind) => {
    expect(statusFailure({ code: 2, details }, "a:1")).toBeInstanceOf(kind);
    expect(statusFailure({ code: UNAVAILABLE, details }, "a:1")).toBeInstanceOf(kind);
  });

  test("with a text of etcd's that no table has rejects the request, if its code is a lasting one", () => {
    const details = "etcdserver: a text of a later version";

    const lasting = statusFailure({ code: 9, details }, "a:1");
    const passing = statusFailure({ code: UNAVAILABLE, details }, "a:1");

    expect(lasting).toBeInstanceOf(EtcdRefusedError);
    expect(lasting).toMatchObject({ reason: "other", inDoubt: true, details });
    expect(passing).toBeInstanceOf(UnansweredError);
  });

  test("that the request is too large is a rejection by Go's gRPC or a proxy, and leaves it in doubt", () => {
    const details = "grpc: received message larger than max (5 vs. 4)";

    const failure = statusFailure({ code: RESOURCE_EXHAUSTED, details }, "a:1");

    expect(failure).toBeInstanceOf(EtcdRefusedError);
    expect(failure).toMatchObject({ reason: "other", inDoubt: true });
  });

  test.each([true, false])("of another server concerns that member only, in doubt if sent: %s", (sent) => {
    const failure = statusFailure({ code: UNIMPLEMENTED, details: "unknown service" }, "a:1", sent);

    expect(failure).toBeInstanceOf(MemberRefusedError);
    expect(failure).toMatchObject({ inDoubt: sent, reason: "member", host: "a:1" });
  });

  test.each([true, false])("with a passing code is no answer, in doubt if sent: %s", (sent) => {
    const failure = statusFailure({ code: UNAVAILABLE, details: "upstream reset\n" }, "a:1", sent);

    expect(failure).toBeInstanceOf(UnansweredError);
    expect(failure).toMatchObject({ inDoubt: sent, message: "upstream reset\\u000a" });
  });
});

describe("a connection that TLS does not open", () => {
  test.each([
    [
      "self-signed certificate in certificate chain",
      "self-signed certificate in certificate chain; no authority that is trusted here has signed the member's certificate: give its own as credentials.rootCertificate (--cacert)",
    ],
    [
      "80CC:error:0A000412:SSL routines:ssl3_read_bytes:sslv3 alert bad certificate:../deps/ssl.c:1:SSL alert number 42",
      "sslv3 alert bad certificate; the member wants a client certificate that it trusts: credentials.privateKey and credentials.certChain",
    ],
  ])("for %j is the member's rejection, with a hint", (reason, details) => {
    const failure = certificateFailure(reason, "a:1");

    expect(failure).toBeInstanceOf(MemberRefusedError);
    expect(failure).toMatchObject({ inDoubt: false, reason: "tls", host: "a:1", message: details });
  });

  test("is not reported as a refused connection", () => {
    expect(certificateFailure("connect ECONNREFUSED 127.0.0.1:1", "a:1")).toBeUndefined();
  });
});
