import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { CurrentCredentials } from "../../../src/etcd/credentials.js";
import { connect, type Credentials, type LogRecord } from "../../../src/index.js";
import { checkConnect } from "../../../src/base/options/connect.js";
import { credentialsChannel } from "../../../src/base/telemetry/channels.js";
import type { CredentialsMessage } from "../../../src/base/telemetry/messages.js";
import { makeAuthority } from "../../support/fixtures/certificates.js";
import { LogWorld } from "../../support/fixtures/log-world.js";
import { thrown } from "../../support/fixtures/misuse.js";

const HOSTS = ["https://a:2379"];
const [old, fresh] = ["old", "new"].map((name) => ({ rootCertificate: makeAuthority(name).certificate }));
const [one, other] = ["a client", "another one"].map((name) => makeAuthority("one").issue(name));

/** Two authorities, the second of which is not written to its end. */
const half = [old, fresh]
  .map((each) => each!.rootCertificate.toString())
  .join("\n")
  .slice(0, -100);

/** What the function of the user does next. */
let next: () => unknown;
const reading = () => {
  const { credentials } = checkConnect({ hosts: HOSTS, credentials: () => next() });
  return new CurrentCredentials("credentials", credentials!, HOSTS);
};
const told: (string | undefined)[] = [];
const listen = ({ hosts, error }: CredentialsMessage) => hosts === HOSTS && told.push(error?.message);

beforeEach(() => {
  next = () => old;
  told.length = 0;
  credentialsChannel.subscribe(listen);
});
afterEach(() => credentialsChannel.unsubscribe(listen));

describe("a function as credentials", () => {
  test("is called for each connection", () => {
    const credentials = reading();
    expect(credentials.current).toEqual(old);

    next = () => fresh;

    expect(credentials.current).toEqual(fresh);
    expect(told).toEqual([]);
  });

  test("may return the same object with other certificates in it", () => {
    const same: Record<string, unknown> = { ...old };
    next = () => same;
    const credentials = reading();
    expect(credentials.current).toEqual(old);

    Object.assign(same, fresh);
    expect(credentials.current).toEqual(fresh);
    Object.assign(same, { rootCertificate: "half a" });
    expect(credentials.current).toEqual(fresh);
    same["rootCertificate"] = fresh!.rootCertificate;
    expect(credentials.current).toEqual(fresh);

    expect(told).toEqual([expect.stringContaining("to be PEM text"), undefined]);
  });

  test("runs in the context of no call: the connection, which may serve all of them, belongs to none", () => {
    const request = new AsyncLocalStorage<string>();
    const seen: (string | undefined)[] = [];
    const credentials = reading();
    next = () => {
      seen.push(request.getStore());
      return old;
    };
    request.run("a request", () => credentials.current);

    expect(seen).toEqual([undefined]);
  });

  test.each<[string, () => unknown, string]>([
    [
      "throws",
      () => {
        throw new Error("no such file");
      },
      "no such file",
    ],
    ["returns no PEM text", () => ({ rootCertificate: "half a" }), "to be PEM text"],
    [
      "returns the key of another certificate",
      () => ({ ...old, certChain: one!.certificate, privateKey: other!.key }),
      "to be a certificate and its key",
    ],
    [
      "returns a bundle that is half written",
      () => ({ rootCertificate: half }),
      "2 blocks that begin and 1 that end",
    ],
    ["returns a promise", () => Promise.resolve(fresh), "Expected credentials() to be an object"],
    ["returns nothing", () => undefined, "Expected credentials() to be an object"],
  ])("that %s leaves the last ones in use, and says so once", (_, returned, said) => {
    const credentials = reading();
    next = returned;

    expect([credentials.current, credentials.current]).toEqual([old, old]);
    expect(told).toEqual([expect.stringContaining(said)]);

    next = () => fresh;
    expect([credentials.current, credentials.current]).toEqual([fresh, fresh]);
    expect(told).toEqual([expect.stringContaining(said), undefined]);
  });

  test.each<[string, () => unknown]>([
    ["throws", () => JSON.parse("no") as unknown],
    ["returns no credentials", () => "ca.pem"],
  ])("that %s at first is refused by connect()", (_, returned) => {
    const options = { hosts: HOSTS, credentials: returned as () => Credentials };
    expect(thrown(() => connect(options))).toBeInstanceOf(Error);
  });

  test("writes a line to the log when it fails, and when it works again", () => {
    const records: LogRecord[] = [];
    using world = new LogWorld((record) => void records.push(record));
    const about = { hosts: world.hosts, option: "credentials" } as const;
    credentialsChannel.publish({ ...about, error: new RangeError("no PEM text") });
    credentialsChannel.publish({ ...about, error: undefined });
    expect(records).toMatchObject([
      { level: "warn", event: "credentials.kept", error: "RangeError" },
      { level: "info", event: "credentials.read" },
    ]);
    expect(records[0]!.message).toContain("no PEM text");
  });

  test("warns the process if nothing listens", () => {
    credentialsChannel.unsubscribe(listen);
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    onTestFinished(() => warn.mockRestore());
    const credentials = reading();
    next = () => undefined;

    expect(credentials.current).toEqual(old);
    expect(warn).toHaveBeenCalledExactlyOnceWith(
      expect.stringMatching(/^credentials\(\) has failed; leasehold keeps using the previous certificates: /),
      expect.objectContaining({ code: "CREDENTIALS_KEPT" }),
    );
  });
});

describe("which of the two functions has failed", () => {
  const working = { credentials: () => old!, auth: () => ({ username: "me", password: "secret" }) };

  test.each([
    ["credentials", "certificates"],
    ["auth", "user and password"],
  ] as const)("is said of %s by the channel, the log and a warning", (option, kept) => {
    let fails = false;
    const failing = () => {
      if (fails) throw new Error("no such file");
      return working[option]();
    };
    const checked = checkConnect({ hosts: HOSTS, ...working, [option]: failing });
    const records: LogRecord[] = [];
    using world = new LogWorld((record) => void records.push(record));
    const current = new CurrentCredentials<unknown>(option, checked[option]!, world.hosts);
    const published: CredentialsMessage[] = [];
    const subscriber = (message: CredentialsMessage) => void published.push(message);
    credentialsChannel.subscribe(subscriber);
    onTestFinished(() => credentialsChannel.unsubscribe(subscriber));
    for (fails of [true, false]) void current.current;

    expect(published).toMatchObject([
      { option, error: { message: "no such file" } },
      { option, error: undefined },
    ]);
    expect(JSON.parse(JSON.stringify(published[0]))).toMatchObject({ option });
    expect(records.map(({ message }) => message)).toEqual([
      `${option}() has failed; the previous ${kept} stay in use: no such file`,
      `${option}() works again`,
    ]);
  });

  test("is said of auth by a warning if nothing listens", () => {
    credentialsChannel.unsubscribe(listen);
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    onTestFinished(() => warn.mockRestore());
    let user: unknown = working.auth();
    const { auth } = checkConnect({ hosts: HOSTS, auth: () => user as ReturnType<typeof working.auth> });
    const current = new CurrentCredentials("auth", auth!, HOSTS);
    user = { username: "me" };

    expect(current.current).toEqual(working.auth());
    const [said] = warn.mock.calls[0]!;
    expect(said).toMatch(/^auth\(\) has failed; leasehold keeps using the previous user and password: /);
    expect(said).not.toContain("secret");
  });
});
