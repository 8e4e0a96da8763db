import { describe, expect, test } from "vitest";
import { failureOf } from "../../../../src/etcd/etcd3/calls.js";
import { MemberRefusedError, UnansweredError } from "../../../../src/etcd/port.js";

const UNAVAILABLE = 14;
/** The failure of an attempt that found no connection. */
const unsent = (details: string) => failureOf({ code: UNAVAILABLE, details }, "a:1", false);

describe("a connection that could not be opened", () => {
  test.each([
    [
      "No connection established. Last error: Error: connect ECONNREFUSED 127.0.0.1:1. Resolution note: ",
      "connect ECONNREFUSED 127.0.0.1:1",
    ],
    [
      "No connection established. Last error: Failed to connect (2026-11-21T03:46:38.408Z). Resolution note: ",
      "Failed to connect; it closed the connection at once: does it want TLS (https://, credentials)?",
    ],
    ["Name resolution failed for target dns:nowhere:1", "Name resolution failed for target dns:nowhere:1"],
  ])("%s leaves nothing in doubt, and is explained", (details, words) => {
    const failure = unsent(details);

    expect(failure).toBeInstanceOf(UnansweredError);
    expect(failure).toMatchObject({ message: words, inDoubt: false });
  });

  test("to https:// is not advised to use TLS, and may succeed later", () => {
    const details =
      "No connection established. Last error: Failed to connect (2026-11-21T03:46:38.408Z). Resolution note: ";
    const failure = failureOf({ code: UNAVAILABLE, details }, "https://a:1", false);

    expect(failure).toBeInstanceOf(UnansweredError);
    expect(failure.message).toContain("credentials.certChain");
    expect(failure.message).not.toContain("https://");
  });

  test.each([
    "No connection established. Last error: Error: 80CC:error:0A00042E:SSL routines:ssl3_read_bytes:tlsv1 alert protocol version:../deps/a.c:1:. Resolution note: ",
    "No connection established. Last error: Error: 80CC:error:0A000460:SSL routines:ssl3_read_bytes:tlsv1 alert no application protocol:../deps/a.c:1:. Resolution note: ",
    "No connection established. Last error: Error: self-signed certificate. Resolution note: ",
    "TypeError [ERR_INVALID_ARG_VALUE]: Setting the TLS ServerName to an IP address is not permitted.",
  ])("%s is the member's own rejection", (details) => {
    const failure = unsent(details);

    expect(failure).toBeInstanceOf(MemberRefusedError);
    expect(failure).toMatchObject({
      inDoubt: false,
      reason: "tls",
      host: "a:1",
    });
  });
});

describe("a status that grpc-js makes up", () => {
  test.each([
    [8, "Bandwidth exhausted or memory limit exceeded", "calm"],
    [14, "Connection dropped: too_many_pings", "calm"],
    [7, "Protocol not secure enough", undefined],
    [12, "No message received", undefined],
  ])("with code %i, %j, is no rejection: the request may have been executed", (code, details, kind) => {
    const failure = failureOf({ code, details }, "a:1");

    expect(failure).toBeInstanceOf(UnansweredError);
    expect(failure).toMatchObject({ kind, message: details, inDoubt: true });
  });
});
