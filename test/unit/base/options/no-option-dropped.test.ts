// Each option of `connect` takes effect, or is refused at once, whatever the form of the call.
import { isDeepStrictEqual } from "node:util";
import { Etcd3 } from "etcd3";
import { afterAll, describe, expect, test } from "vitest";
import { checkConnect } from "../../../../src/base/options/connect.js";
import type { ConnectOptions } from "../../../../src/lock/session/connect.js";
import { makeAuthority } from "../../../support/fixtures/certificates.js";

const client = new Etcd3({ hosts: "127.0.0.1:2379" });
afterAll(() => client.close());

const authority = makeAuthority("any");

/** What each option may be, other than by default, and what it may not be. */
const OPTIONS: Readonly<
  Record<
    Exclude<keyof ConnectOptions, "etcd3">,
    { readonly may: unknown; readonly mayNot: unknown; readonly with?: object }
  >
> = {
  hosts: { may: "b:2", mayNot: 7 },
  followMembers: { may: true, mayNot: "yes" },
  prefix: { may: "prod/", mayNot: "prod" },
  credentials: {
    may: { rootCertificate: authority.certificate },
    mayNot: "ca.pem",
  },
  auth: { may: { username: "a", password: "b" }, mayNot: "a:b" },
  transport: { may: "etcd3", mayNot: "grpc" },
  pingIntervalMs: { may: 7000, mayNot: 1 },
  pingTimeoutMs: { may: 3000, mayNot: 1 },
  connectTimeoutMs: { may: 3000, mayNot: 1 },
  requestTimeoutMs: { may: 3000, mayNot: 1 },
  guardian: { may: true, mayNot: "yes" },
  renewal: { may: "worker", mayNot: "bogus" },
  maxStallMs: { may: 5000, mayNot: 1, with: { renewal: "worker" } },
  session: { may: { ttlSeconds: 30 }, mayNot: { ttlSeconds: 0 } },
  log: { may: console, mayNot: 7 },
};

const FORMS: Readonly<Record<string, object>> = {
  "connect({ hosts })": { hosts: "a:1", transport: "http2" },
  'connect({ hosts, transport: "etcd3" })': { hosts: "a:1", transport: "etcd3" },
  "connect({ etcd3 })": { etcd3: client },
};

function errorOf(options: object): Error | undefined {
  try {
    checkConnect(options);
    return undefined;
  } catch (error) {
    return error as Error;
  }
}

/** What is without effect there, although it is no default elsewhere. */
const IS_SO = ['connect({ hosts, transport: "etcd3" }) transport', "connect({ etcd3 }) transport"];

describe.each(Object.entries(FORMS))("%s drops no option:", (form, given) => {
  test.each(Object.entries(OPTIONS))("%s", (option, { may, mayNot, with: more = {} }) => {
    const beside = "etcd3" in given ? {} : more;
    const options = { ...given, ...beside, [option]: may };
    const error = errorOf(options);
    const hasEffect =
      error === undefined &&
      (IS_SO.includes(`${form} ${option}`) ||
        !isDeepStrictEqual(checkConnect(options), checkConnect({ ...given, ...beside })));

    if (!hasEffect)
      expect(error?.message).toMatch(new RegExp(`^Option ${option} (?:has no effect with|cannot be used) `));
    expect(errorOf({ ...given, ...beside, [option]: mayNot })?.message).toMatch(
      new RegExp(`^(?:Expected|Option) (the options of connect's )?${option}\\b|^Expected ttlSeconds`),
    );
  });
});

test("the table has every option of connect", () => {
  const known = /\(known: (.*)\)$/.exec(errorOf({ hosts: "a:1", none: 1 })?.message ?? "")?.[1]?.split(", ");
  expect([...Object.keys(OPTIONS), "etcd3"].sort()).toEqual(known?.sort());
});
