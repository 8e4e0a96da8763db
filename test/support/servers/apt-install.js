// Debian packages for tests that need more than Node and etcd.
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Only where this changes no personal machine: rejects with the reason unless run by root with CI=true.
 * @param {readonly string[]} packages
 */
export async function aptInstall(packages) {
  if (process.getuid?.() !== 0) throw new Error("only root may install it");
  if (process.env["CI"] !== "true") throw new Error("with CI=true it would be installed");
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const settings = { env, maxBuffer: 16 << 20 };
  try {
    await run("apt-get", ["update", "-q"], { ...settings, timeout: 120_000 });
    const args = ["install", "-y", "-q", "--no-install-recommends", ...packages];
    await run("apt-get", args, { ...settings, timeout: 300_000 });
  } catch (error) {
    const [line] = String(error instanceof Error ? error.message : error).split("\n");
    throw new Error(`it cannot be installed (${line})`, { cause: error });
  }
}
