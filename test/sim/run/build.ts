import path from "node:path";
import { pathToFileURL } from "node:url";
import { HeaderDecoder } from "../../../src/etcd/http2/frames/hpack.js";
import { buildMutant } from "../../lab/mutants/build.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import type * as Headers from "../../../src/etcd/grpc/request-headers.js";
import type * as Leasehold from "../../../src/index.js";
import type { createCluster } from "../../../src/session/connect.js";

/** The code under test: the sources, or a build in which a rule is broken. */
export interface Build {
  readonly leasehold: typeof Leasehold;
  readonly createCluster: typeof createCluster;
  /** Streams are opened with `hasleader`. Default: true. */
  readonly requiresLeader?: boolean;
}

export async function sources(): Promise<Build> {
  const [leasehold, { createCluster }] = await Promise.all([
    import("../../../src/index.js"),
    import("../../../src/session/connect.js"),
  ]);
  return { leasehold, createCluster };
}

/** @throws {RangeError} if the lab has no such mutant. */
export async function mutantOf(name: string): Promise<Build> {
  const mutant = MUTANTS.find((each) => each.name === name);
  if (mutant === undefined) throw new RangeError(`Expected a mutant of the lab, got "${name}"`);
  const folder = buildMutant(mutant);
  const load = (file: string): Promise<unknown> => import(pathToFileURL(path.join(folder, file)).href);
  const [leasehold, connect, headers] = await Promise.all(
    ["index.js", "session/connect.js", "etcd/grpc/request-headers.js"].map(load),
  );
  const { RequestHeaders } = headers as typeof Headers;
  const block = new RequestHeaders({ hostname: "etcd", port: 2379, tls: undefined }).ofStream("/", undefined);
  const requiresLeader = new HeaderDecoder(65_536).decode(block).has("hasleader");
  return {
    leasehold: leasehold as typeof Leasehold,
    ...(connect as Pick<Build, "createCluster">),
    requiresLeader,
  };
}
