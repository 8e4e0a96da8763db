import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { connect } from "../../../../src/index.js";
import { makeAuthority } from "../../../support/fixtures/certificates.js";
import { exposure, linesOfPem } from "../../../support/fixtures/exposure.js";
import { thrown } from "../../../support/fixtures/misuse.js";

/** Every text that `connect` shows for these options; empty if it accepts them. */
function complaint(options: object): string {
  try {
    connect(options as Parameters<typeof connect>[0]);
    return "";
  } catch (error) {
    return exposure(error);
  }
}

describe("a password", () => {
  const secret = fc.stringMatching(/^[\w.!$&'()*+,;=:@%~?#-]{8,20}$/).map((text) => `se${text}cret`);
  const somewhere = secret.chain((text) =>
    fc
      .constantFrom<object>(
        { auth: text },
        { auth: [text] },
        { auth: Buffer.from(text) },
        { auth: { password: text } },
        { auth: { username: "u", password: [text] } },
        { auth: { username: { text }, password: text } },
        { auth: { username: "u", passwd: text } },
        { auth: { username: "u", password: text, more: text } },
        { credentials: text },
        { credentials: [text] },
        { grpcOptions: text },
        ...["http://", "https://", ""].flatMap((scheme) => [
          { hosts: `${scheme}u:${text}@localhost:2379` },
          { hosts: ["a:1", `${scheme}u:${text}@localhost`] },
        ]),
      )
      .map((options) => ({ text, options: { hosts: "a:1", ...options } })),
  );

  test("is in no complaint about an option, wherever it was put by mistake", () => {
    fc.assert(
      fc.property(somewhere, ({ text, options }) => {
        expect(thrown(() => connect(options))).toBeInstanceOf(Error);
        expect(complaint(options)).not.toContain(text);
      }),
      { numRuns: Number(process.env["LEASEHOLD_FUZZ"] ?? 200) },
    );
  });
});

describe("a client's key and certificate", () => {
  const authority = makeAuthority("our authority");
  const rootCertificate = authority.certificate;
  const { certificate, key } = authority.issue("a client");
  const lines = [rootCertificate, certificate, key].flatMap(linesOfPem);

  const damaged = (pem: Buffer) =>
    fc.oneof(
      fc.constant(pem),
      fc.nat(pem.length).map((at) => pem.subarray(0, at)),
      fc.tuple(fc.nat(pem.length - 1), fc.nat(255)).map(([at, byte]) => {
        const copy = Buffer.from(pem);
        copy[at] = byte;
        return copy;
      }),
      fc.constantFrom("---", "").map((dashes) => Buffer.from(pem.toString().replaceAll("-----", dashes))),
    );
  const credentials = fc.oneof(
    {
      weight: 9,
      arbitrary: fc.record({
        rootCertificate: damaged(rootCertificate),
        privateKey: damaged(key),
        certChain: damaged(certificate),
      }),
    },
    fc.constantFrom<object>(
      { rootCertificate, privateKey: certificate, certChain: key },
      { rootCertificate: key, privateKey: key, certChain: certificate },
      { rootCertificate, privateKey: key.toString(), certChain: certificate.toString() },
      { rootCertificate, privateKey: key },
    ),
  );

  test("are in no complaint about credentials, however they were damaged", () => {
    let complaints = 0;
    fc.assert(
      fc.property(credentials, (given) => {
        const shown = complaint({ hosts: "https://a:1", credentials: given });
        if (shown !== "") complaints++;
        expect(lines.filter((line) => shown.includes(line))).toEqual([]);
      }),
      { numRuns: Number(process.env["LEASEHOLD_FUZZ"] ?? 200) },
    );
    expect(complaints).toBeGreaterThan(0);
  });
});
