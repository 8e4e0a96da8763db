// The image from which tests start etcd: docker/Dockerfile's, or one created without pulling anything.
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { debianReleaseOf } from "../etcd/etcd-debian.js";
import { findEtcd } from "../etcd/etcd.js";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const NAME = "leasehold-etcd";

/**
 * @param {NodeJS.ProcessEnv} env by which the docker command finds its engine
 * @param {string | undefined} [version] such as "3.5"; default: that of docker/Dockerfile, or the first etcd found
 * @returns {Promise<{ image: string, made: string }>} `made` describes how it was created
 */
export async function provideImage(env, version) {
  const image = version === undefined ? NAME : `${NAME}:${version}`;
  const release = version === undefined ? undefined : debianReleaseOf(version);
  const args = release === undefined ? [] : ["--build-arg", `RELEASE=${release}`];
  try {
    await run("docker", ["build", "--quiet", "--tag", image, ...args, "docker"], {
      ...{ cwd: ROOT, env, timeout: 300_000 },
    });
    return { image, made: "built from docker/Dockerfile" };
  } catch (error) {
    const { stderr } = /** @type {{ stderr?: string }} */ (error);
    const why = (stderr ?? String(error)).trim().split("\n").at(-1);
    await importImage(image, env, version);
    const made = `made of this machine's etcd, as docker/Dockerfile cannot be built here (${why})`;
    return { image, made };
  }
}

/**
 * Environment for testcontainers. Ryuk, the container that cleans up after it, would have to be pulled: the tests clean
 * up themselves.
 * @param {string} image
 */
export const containersOf = (image) => ({
  LEASEHOLD_ETCD_IMAGE: image,
  TESTCONTAINERS_RYUK_DISABLED: "true",
});

// If no base image can be pulled: a container needs only etcd and the libraries that it is linked with.
/** @param {string} image @param {NodeJS.ProcessEnv} env @param {string | undefined} version */
async function importImage(image, env, version) {
  const { etcd } = await findEtcd({ version });
  const work = await mkdtemp(path.join(os.tmpdir(), "leasehold-image-"));
  try {
    await mkdir(path.join(work, "tree/usr/bin"), { recursive: true });
    await copyFile(etcd, path.join(work, "tree/usr/bin/etcd"));
    for (const file of await librariesOf(etcd)) {
      await mkdir(path.join(work, "tree", path.dirname(file)), { recursive: true });
      await copyFile(file, path.join(work, "tree", file));
    }
    const archive = path.join(work, "image.tar");
    await run("tar", ["-C", path.join(work, "tree"), "-cf", archive, "."], { timeout: 60_000 });
    const changes = [
      'ENTRYPOINT ["/usr/bin/etcd"]',
      "EXPOSE 2379 2380",
      `ENV ETCD_UNSUPPORTED_ARCH=${process.arch}`,
    ];
    const options = changes.flatMap((change) => ["--change", change]);
    await run("docker", ["import", ...options, archive, image], { env, timeout: 60_000 });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** @param {string} program */
async function librariesOf(program) {
  // a statically linked program has none, which ldd reports by its exit code
  const { stdout } = await run("ldd", [program], { timeout: 20_000 }).catch(() => ({ stdout: "" }));
  return [...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => /** @type {string} */ (match[1]));
}
