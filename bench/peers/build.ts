// The build that is measured, and the private parts of it that bare requests use.
import { existsSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { NotRunError } from "../../test/lab/runner/ground.js";

type Codec = Pick<typeof import("../../src/etcd/http2/codec-write.js"), "encodeTxns"> &
  Pick<typeof import("../../src/etcd/http2/codec-read.js"), "decodeTxns">;
type Transport = Pick<typeof import("../../src/etcd/http2/member.js"), "GrpcMember"> &
  Pick<typeof import("../../src/base/options/connect.js"), "checkConnect"> &
  Pick<typeof import("../../src/base/util/clock.js"), "systemClock">;

/** A file of a build; older builds have the second one. */
type Part = readonly [now: string, before?: string];
const MEMBER: Part = ["etcd/http2/member.js", "etcd/grpc/member.js"];
const CODEC: readonly Part[] = [
  ["etcd/http2/codec-write.js", "etcd/codec/requests.js"],
  ["etcd/http2/codec-read.js", "etcd/codec/answers.js"],
];
const OPTIONS: readonly Part[] = [["base/options/connect.js"], ["base/util/clock.js", "async/clock.js"]];

/** The URL of its `index.js`. */
export const entryOf = (build: string | undefined): string =>
  build === undefined
    ? import.meta.resolve("leasehold")
    : pathToFileURL(path.resolve(build, "index.js")).href;

/** @throws NotRunError if the build is from before leasehold's own transport. */
export function assertOwnTransport(build: string | undefined): void {
  if (!existsSync(fileOf(build, MEMBER)))
    throw new NotRunError("this build of leasehold has no transport of its own");
}

export const ownCodec = async (build: string | undefined): Promise<Codec> => partsOf<Codec>(build, CODEC);

export const ownTransport = async (build: string | undefined): Promise<Transport> =>
  partsOf<Transport>(build, [MEMBER, ...OPTIONS]);

function fileOf(build: string | undefined, [now, before]: Part): URL {
  const file = new URL(now, entryOf(build));
  return before === undefined || existsSync(file) ? file : new URL(before, entryOf(build));
}

/** The exports of these files together. */
async function partsOf<T extends object>(build: string | undefined, parts: readonly Part[]): Promise<T> {
  const modules = parts.map((part) => import(fileOf(build, part).href) as Promise<object>);
  return Object.assign({}, ...(await Promise.all(modules))) as T;
}
