// The build that is measured, and the private parts of it that bare requests use.
import { existsSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { NotRunError } from "../../test/lab/runner/ground.js";

type Codec = Pick<typeof import("../../src/etcd/codec/requests.js"), "encodeTxns"> &
  Pick<typeof import("../../src/etcd/codec/answers.js"), "decodeTxns">;
type Transport = Pick<typeof import("../../src/etcd/grpc/member.js"), "GrpcMember"> &
  Pick<typeof import("../../src/options/connect.js"), "checkConnect"> &
  Pick<typeof import("../../src/async/clock.js"), "systemClock">;

/** The URL of its `index.js`. */
export const entryOf = (build: string | undefined): string =>
  build === undefined
    ? import.meta.resolve("leasehold")
    : pathToFileURL(path.resolve(build, "index.js")).href;

/** @throws NotRunError if the build is from before leasehold's own transport. */
export function assertOwnTransport(build: string | undefined): void {
  if (!existsSync(new URL("etcd/grpc/member.js", entryOf(build))))
    throw new NotRunError("this build of leasehold has no transport of its own");
}

export const ownCodec = async (build: string | undefined): Promise<Codec> =>
  partsOf<Codec>(build, ["etcd/codec/requests.js", "etcd/codec/answers.js"]);

export const ownTransport = async (build: string | undefined): Promise<Transport> =>
  partsOf<Transport>(build, ["etcd/grpc/member.js", "options/connect.js", "async/clock.js"]);

/** The exports of these files together. */
async function partsOf<T extends object>(build: string | undefined, files: readonly string[]): Promise<T> {
  const modules = files.map((file) => import(new URL(file, entryOf(build)).href) as Promise<object>);
  return Object.assign({}, ...(await Promise.all(modules))) as T;
}
