// Certificates for tests, made at run time by nothing but Node: X.509 v3 in DER, signed with P-256.
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";

const SEQUENCE = 0x30;
const SET = 0x31;
const OID = {
  commonName: "550403",
  basicConstraints: "551d13",
  subjectAltName: "551d11",
  extendedKeyUsage: "551d25",
  authorityKey: "551d23",
  subjectKey: "551d0e",
  serverAuth: "2b06010505070301",
  clientAuth: "2b06010505070302",
  ecdsaWithSha256: "2a8648ce3d040302",
};

/** @param {number} tag @param {...Uint8Array} parts */
function der(tag, ...parts) {
  const body = Buffer.concat(parts);
  const { length } = body;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...size]), body]);
}

const oid = (/** @type {string} */ hex) => der(0x06, Buffer.from(hex, "hex"));
const name = (/** @type {string} */ common) =>
  der(SEQUENCE, der(SET, der(SEQUENCE, oid(OID.commonName), der(0x0c, Buffer.from(common)))));
const algorithm = der(SEQUENCE, oid(OID.ecdsaWithSha256));

/** @param {number} days from today */
function time(days) {
  const text = new Date(Date.now() + days * 86_400_000).toISOString().replace(/[-:T]/g, "").slice(0, 14);
  return der(0x18, Buffer.from(`${text}Z`));
}

/** @param {string} id @param {Uint8Array} value */
const extension = (id, value) => der(SEQUENCE, oid(id), der(0x04, value));

/** @param {string} host */
function altName(host) {
  if (!net.isIPv4(host)) return der(0x82, Buffer.from(host));
  return der(0x87, Buffer.from(host.split(".").map(Number)));
}

/** @param {string} type @param {Uint8Array} bytes */
function pem(type, bytes) {
  const lines =
    Buffer.from(bytes)
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return Buffer.from([`-----BEGIN ${type}-----`, ...lines, `-----END ${type}-----`, ""].join("\n"));
}

/**
 * @typedef {object} Pair
 * @property {Buffer} certificate PEM
 * @property {Buffer} key PEM
 * @typedef {object} Subject
 * @property {string} common
 * @property {readonly string[]} [hosts] none: an authority
 * @property {number | undefined} [validDays] from today; negative: it has expired. Default 30
 */

class Authority {
  #keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
  #common;
  /** PEM */
  certificate;

  /** @param {string} common */
  constructor(common) {
    this.#common = common;
    this.certificate = this.#sign(this.#keys.publicKey, { common });
  }

  /**
   * For servers and clients alike.
   * @param {string} common @param {readonly string[]} [hosts] @param {Pick<Subject, "validDays">} [validity]
   * @returns {Pair}
   */
  issue(common, hosts = ["127.0.0.1", "localhost"], { validDays } = {}) {
    const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const key = Buffer.from(privateKey.export({ type: "pkcs8", format: "pem" }));
    return { certificate: this.#sign(publicKey, { common, hosts, validDays }), key };
  }

  /** @param {import("node:crypto").KeyObject} publicKey @param {Subject} subject */
  #sign(publicKey, { common, hosts, validDays = 30 }) {
    const toBeSigned = der(
      SEQUENCE,
      der(0xa0, der(0x02, Buffer.from([2]))),
      der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(15)])),
      algorithm,
      name(this.#common),
      der(SEQUENCE, time(validDays - 31), time(validDays)),
      name(common),
      publicKey.export({ type: "spki", format: "der" }),
      der(0xa3, der(SEQUENCE, ...this.#extensions(publicKey, hosts))),
    );
    const signature = sign("sha256", toBeSigned, this.#keys.privateKey);
    return pem("CERTIFICATE", der(SEQUENCE, toBeSigned, algorithm, der(0x03, Buffer.from([0]), signature)));
  }

  /** @param {import("node:crypto").KeyObject} publicKey @param {readonly string[] | undefined} hosts */
  #extensions(publicKey, hosts) {
    const ids = [
      extension(OID.subjectKey, der(0x04, idOf(publicKey))),
      extension(OID.authorityKey, der(SEQUENCE, der(0x80, idOf(this.#keys.publicKey)))),
    ];
    if (!hosts)
      return [...ids, extension(OID.basicConstraints, der(SEQUENCE, der(0x01, Buffer.from([255]))))];
    const usage = der(SEQUENCE, oid(OID.serverAuth), oid(OID.clientAuth));
    return [
      ...ids,
      extension(OID.extendedKeyUsage, usage),
      extension(OID.subjectAltName, der(SEQUENCE, ...hosts.map(altName))),
    ];
  }
}

/** @param {import("node:crypto").KeyObject} publicKey */
const idOf = (publicKey) =>
  createHash("sha1")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest();

/** @param {string} common */
export const makeAuthority = (common) => new Authority(common);

/**
 * Writes a server's certificate for `startEtcd({ clientTls })`.
 * @param {Authority} authority @param {Pair} pair
 */
export async function writeServerFiles(authority, { certificate, key }) {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-tls-"));
  const files = {
    ca: path.join(folder, "ca.pem"),
    cert: path.join(folder, "cert.pem"),
    key: path.join(folder, "key.pem"),
  };
  await writeFile(files.ca, authority.certificate);
  await writeFile(files.cert, certificate);
  await writeFile(files.key, key, { mode: 0o600 });
  return { ...files, remove: () => rm(folder, { recursive: true, force: true }) };
}
