import { Etcd3 } from "etcd3";
import { afterAll, describe, expect, test } from "vitest";
import { connect } from "../../../../src/index.js";
import { checkConnect } from "../../../../src/base/options/connect.js";
import { expectMisuse, outOfRange, thrown, titled, wrongType } from "../../../support/fixtures/misuse.js";

const HOST = "127.0.0.1:2379";
const clients: Etcd3[] = [];
function clientOf(options: ConstructorParameters<typeof Etcd3>[0] = { hosts: HOST }): Etcd3 {
  const client = new Etcd3(options);
  clients.push(client);
  return client;
}
afterAll(() => clients.forEach((client) => client.close()));

const client = clientOf();
const connecting = (options: object) => () => connect(options as Parameters<typeof connect>[0]);
const NO_CLIENT = "a client of the package etcd3: new Etcd3(…)";

describe("connect", () => {
  test.each([
    ["hosts", HOST],
    ["transport", "http2"],
    ["credentials", {}],
    ["auth", { username: "a", password: "b" }],
    ["pingIntervalMs", 6000],
    ["pingTimeoutMs", 2000],
    ["connectTimeoutMs", 2000],
  ])("refuses, beside a client of etcd3, %s: %j", (option, value) => {
    expect(connecting({ etcd3: client, [option]: value })).toThrow(
      new TypeError(`Option ${option} cannot be used together with etcd3: the client decides that`),
    );
  });

  const namespace = client.namespace("jobs/");
  test.each(
    titled([
      wrongType("etcd3", "an object", null),
      wrongType("etcd3", "an object", HOST, "a string"),
      wrongType("etcd3", NO_CLIENT, {}, "an object (Object)"),
      wrongType("etcd3", NO_CLIENT, Etcd3, "a function"),
      wrongType("etcd3", NO_CLIENT, { pool: { hosts: [], options: {} }, auth: {} }, "an object (Object)"),
      wrongType("etcd3", NO_CLIENT, { pool: { hosts: [null], options: {} }, auth: {} }, "an object (Object)"),
    ]).map(([title, each]) => [title, each] as const),
  )("refuses what is no client: %s", (_, each) => {
    const rule = typeof each.value === "function" ? "an object" : each.rule;
    expectMisuse(thrown(connecting({ etcd3: each.value })), { ...each, rule });
  });

  test("refuses a namespace of a client, whose keys are elsewhere", () => {
    const each = wrongType("etcd3", NO_CLIENT, namespace, "an object (Namespace)");
    expectMisuse(thrown(connecting({ etcd3: namespace })), each);
  });

  test("refuses a client that repeats requests by itself", () => {
    const config = '{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3}}]}';
    const etcd3 = clientOf({ hosts: HOST, grpcOptions: { "grpc.service_config": config } });

    expectMisuse(
      thrown(connecting({ etcd3 })),
      outOfRange("etcd3", "has no retries", etcd3, JSON.stringify(config).slice(0, 20)),
    );
  });

  test("takes hosts, user and password from the client, and `transport` if it agrees", () => {
    const auth = { username: "root", password: "secret", callOptions: { deadline: 5 } };
    const etcd3 = clientOf({ hosts: ["https://a", "https://b:2380"], auth });

    const checked = checkConnect({ etcd3, transport: "etcd3" });
    expect(checked).toMatchObject({
      ...{ transport: "etcd3", hosts: ["https://a:443", "https://b:2380"], credentials: undefined },
    });
    expect(checked.auth?.()).toEqual({ username: "root", password: "secret" });
    expect(checkConnect({ etcd3: client }).hosts).toEqual([`http://${HOST}`]);
    expect(checkConnect({ etcd3: clientOf() }).auth).toBeUndefined();
  });
});
