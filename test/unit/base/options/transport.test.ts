import { describe, expect, test } from "vitest";
import { connect } from "../../../../src/index.js";
import { checkConnect } from "../../../../src/base/options/connect.js";
import { chosenTransport } from "../../../support/transport.js";
import { expectMisuse, outOfRange, thrown, titled, wrongType } from "../../../support/fixtures/misuse.js";

const HOSTS = "127.0.0.1:2379";
const connecting = (options: object) => () => connect({ hosts: HOSTS, ...options });
const NAMES = '"http2" or "etcd3"';
const rule = (min: number, max: number) => `a whole number from ${min} to ${max}`;

const badHttp2 = [
  ...[4999, 3_600_001, 5000.5, NaN].map((ms) => outOfRange("pingIntervalMs", rule(5000, 3_600_000), ms)),
  ...[99, 60_001, NaN].map((ms) => outOfRange("pingTimeoutMs", rule(100, 60_000), ms)),
  ...[99, 60_001, Infinity].map((ms) => outOfRange("connectTimeoutMs", rule(100, 60_000), ms)),
  wrongType("pingIntervalMs", rule(5000, 3_600_000), "6000", '"6000"'),
  wrongType("pingTimeoutMs", rule(100, 60_000), null),
  wrongType("connectTimeoutMs", rule(100, 60_000), 2000n),
];

const badEtcd3 = [
  [
    "pingIntervalMs",
    'Option pingIntervalMs has no effect with transport: "etcd3"; give the option etcd3 a client with grpcOptions["grpc.keepalive_time_ms"]',
  ],
  ["pingTimeoutMs", 'grpcOptions["grpc.keepalive_timeout_ms"]'],
  ["connectTimeoutMs", "use requestTimeoutMs"],
] as const;

describe("connect", () => {
  test.each(
    titled([
      outOfRange("transport", NAMES, "http", '"http"'),
      outOfRange("transport", NAMES, "", '""'),
      wrongType("transport", NAMES, 2),
      wrongType("transport", NAMES, null),
      wrongType("transport", NAMES, ["http2"], "an array"),
    ]),
  )("refuses %s", (_, each) => {
    expectMisuse(thrown(connecting({ transport: each.value })), each);
  });

  test.each(titled(badHttp2))("refuses, with transport http2, %s", (_, each) => {
    expectMisuse(thrown(connecting({ transport: "http2", [each.option]: each.value })), each);
  });

  test.each(badEtcd3)("refuses, with transport etcd3, %s", (option, message) => {
    const error = thrown(connecting({ transport: "etcd3", [option]: 6000 }));

    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain(message);
  });

  test("takes the options of the transport http2 at both ends of their ranges", () => {
    const least = { pingIntervalMs: 5000, pingTimeoutMs: 100, connectTimeoutMs: 100 };
    const most = { pingIntervalMs: 3_600_000, pingTimeoutMs: 60_000, connectTimeoutMs: 60_000 };

    for (const options of [least, most])
      expect(checkConnect({ hosts: HOSTS, transport: "http2", ...options })).toMatchObject(options);
  });

  test("pings every 6 s by default, with either transport", () => {
    expect(checkConnect({ hosts: HOSTS, transport: "http2" })).toMatchObject({
      ...{ transport: "http2", pingIntervalMs: 6000, pingTimeoutMs: 2000, connectTimeoutMs: 2000 },
    });
    expect(checkConnect({ hosts: HOSTS, transport: "etcd3" }).pingIntervalMs).toBe(6000);
  });

  test("uses http2 by default, or what LEASEHOLD_TRANSPORT makes the default of a test run", () => {
    expect(checkConnect({ hosts: HOSTS }).transport).toBe(chosenTransport() ?? "http2");
  });
});
