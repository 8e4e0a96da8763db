import { describe, expect, test } from "vitest";
import { checkConnect } from "../../../../src/base/options/connect.js";
import { makeAuthority } from "../../../support/fixtures/certificates.js";
import { thrown } from "../../../support/fixtures/misuse.js";

const authority = makeAuthority("our authority");
const { certificate, key } = authority.issue("a client");
const good = { rootCertificate: authority.certificate, certChain: certificate, privateKey: key };
const OPTIONS = ["rootCertificate", "certChain", "privateKey"] as const;

const checked = (credentials: object) => checkConnect({ hosts: "https://a:1", credentials }).credentials!();
const complaint = (credentials: object) => (thrown(() => checked(credentials)) as Error).message;

describe("PEM text", () => {
  test("is taken as a string and as bytes, with the same result", () => {
    const text = Object.fromEntries(OPTIONS.map((option) => [option, good[option].toString()]));
    const array = Object.fromEntries(OPTIONS.map((option) => [option, new Uint8Array(good[option])]));

    for (const option of OPTIONS) {
      expect(Buffer.from(checked(text)[option]!)).toEqual(Buffer.from(good[option]));
      expect(Buffer.from(checked(array)[option]!)).toEqual(Buffer.from(good[option]));
    }
  });

  const paths = [
    "/etc/etcd/ca",
    "ca.pem",
    "../../options/ca",
    "C:\\etcd\\ca",
    "~/ca.crt",
    "file:///ca",
    "ca.key\n",
  ];
  test.each(OPTIONS.flatMap((option) => paths.map((path) => [option, path] as const)))(
    "in %s is no path, such as %j",
    (option, path) => {
      for (const value of [path, Buffer.from(path)])
        expect(complaint({ ...good, [option]: value })).toBe(
          `Expected credentials.${option} to be PEM text, got a path: pass the content of that file, as of readFileSync()`,
        );
    },
  );

  test.each(OPTIONS)("in %s that came through an environment variable needs real line breaks", (option) => {
    const value = good[option].toString().replaceAll("\n", "\\n");

    expect(complaint({ ...good, [option]: value })).toContain(
      `Expected credentials.${option} to be PEM text, got text in which "\\n", two characters, stands for each line break`,
    );
  });

  test.each(OPTIONS)("that is none is not shown in the error about %s", (option) => {
    const secret = key.toString().split("\n")[1]!;

    expect(complaint({ ...good, [option]: secret })).toMatch(/to be PEM text, got other bytes$/);
    expect(complaint({ ...good, [option]: [secret] })).toMatch(
      /a string, a Buffer or a Uint8Array, got an array$/,
    );
  });
});
