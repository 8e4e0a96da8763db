// A key pair with which etcd signs its tokens, for `startEtcd({ args })`.
import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";

/** @param {{ ttlSeconds: number }} options after which a token is no longer valid, however much it is used */
export async function makeJwtArgs({ ttlSeconds }) {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-jwt-"));
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const files = { pub: path.join(folder, "public.pem"), priv: path.join(folder, "private.pem") };
  await writeFile(files.pub, publicKey.export({ type: "spki", format: "pem" }));
  await writeFile(files.priv, privateKey.export({ type: "pkcs1", format: "pem" }), { mode: 0o600 });
  const keys = `pub-key=${files.pub},priv-key=${files.priv}`;
  return {
    args: [`--auth-token=jwt,${keys},sign-method=RS256,ttl=${ttlSeconds}s`],
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
