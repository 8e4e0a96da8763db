import { writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { HeaderDecoder } from "../../../src/etcd/http2/hpack.js";
import { buildMutant } from "../../lab/mutants/build.js";
import type { Mutant } from "../../lab/mutants/mutant.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import * as errors from "../../../src/errors.js";
import * as portErrors from "../../../src/etcd/port.js";
import type * as Client from "../../../src/etcd/client.js";
import type * as Grpc from "../../../src/etcd/http2/member.js";
import type { Member } from "../../../src/etcd/port.js";
import type * as Leasehold from "../../../src/index.js";
import type * as Refusals from "../../../src/etcd/refusals.js";
import type { createCluster } from "../../../src/lock/session/connect.js";
import type * as Thread from "../../../src/alive/lease-renewer.js";

/** The code under test: the sources, or a build in which a rule is broken. */
export interface Build {
  readonly leasehold: typeof Leasehold;
  readonly createCluster: typeof createCluster;
  readonly GrpcMember: typeof Grpc.GrpcMember;
  /** What a worker thread runs that renews leases. */
  readonly renewal: Pick<typeof Client & typeof Thread, "EtcdClient" | "LeaseRenewer">;
  /** Streams are opened with `hasleader`. Default: true. */
  readonly requiresLeader?: boolean;
}

/**
 * The classes of the errors with which the simulated members reject calls are those of the sources. A build with classes of its
 * own would recognize none of them, and would fail without any patch.
 */
const SHARED: Readonly<Record<string, object>> = { errors, "etcd/port": portErrors };
/** Where a build finds them: it is loaded by its URL, and so is a module that was loaded under another one. */
const SHARED_NAME = "leasehold, simulated: shared modules";
(globalThis as Record<symbol, unknown>)[Symbol.for(SHARED_NAME)] = SHARED;

/** By which a member reads etcd's rejections. */
const REFUSALS = "etcd/refusals.js";

export async function sources(): Promise<Build> {
  const [leasehold, { createCluster }, { GrpcMember }, { EtcdClient }, { LeaseRenewer }] = await Promise.all([
    import("../../../src/index.js"),
    import("../../../src/lock/session/connect.js"),
    import("../../../src/etcd/http2/member.js"),
    import("../../../src/etcd/client.js"),
    import("../../../src/alive/lease-renewer.js"),
  ]);
  return { leasehold, createCluster, GrpcMember, renewal: { EtcdClient, LeaseRenewer } };
}

/** @throws {RangeError} if the lab has no such mutant. */
export async function mutantOf(name: string): Promise<Build> {
  const mutant = MUTANTS.find((each) => each.name === name);
  if (mutant === undefined) throw new RangeError(`Expected a mutant of the lab, got "${name}"`);
  return buildOf(mutant);
}

/** The build with patches. @throws if one does not apply, or would have no effect. */
export async function buildOf({ name, patches }: Pick<Mutant, "name" | "patches">): Promise<Build> {
  const folder = buildMutant({ name, patches });
  // Without it, each module would be loaded a second time, as CommonJS.
  writeFileSync(path.join(folder, "package.json"), '{ "type": "module" }\n');
  for (const [file, module] of Object.entries(SHARED)) {
    if (patches.some((patch) => patch.file === `${file}.js`))
      throw new Error(`${name}: ${file}.js is shared`);
    const found = `globalThis[Symbol.for(${JSON.stringify(SHARED_NAME)})][${JSON.stringify(file)}]`;
    const text = `export const { ${Object.keys(module).join(", ")} } = ${found};\n`;
    writeFileSync(path.join(folder, `${file}.js`), text);
  }
  const load = (file: string): Promise<unknown> => import(pathToFileURL(path.join(folder, file)).href);
  const rejudges = patches.some(({ file }) => file === REFUSALS);
  const [leasehold, connect, member, client, thread] = await Promise.all(
    [
      ...["index.js", "lock/session/connect.js", "etcd/http2/member.js"],
      ...["etcd/client.js", "alive/lease-renewer.js"],
    ].map(load),
  );
  const { GrpcMember, RequestHeaders } = member as typeof Grpc;
  const target = { hostname: "etcd", port: 2379, tls: undefined };
  const { block } = new RequestHeaders(target).ofStream("/", undefined);
  const { createCluster } = connect as Pick<Build, "createCluster">;
  const requiresLeader = new HeaderDecoder(65_536).decode(block).has("hasleader");
  return {
    leasehold: leasehold as typeof Leasehold,
    createCluster: rejudges
      ? judgedBy((await load(REFUSALS)) as typeof Refusals, createCluster)
      : createCluster,
    GrpcMember,
    renewal: {
      EtcdClient: (client as typeof Client).EtcdClient,
      LeaseRenewer: (thread as typeof Thread).LeaseRenewer,
    },
    requiresLeader,
  };
}

/**
 * The simulated members read etcd's rejections by the rules of the sources. In a build whose rules are patched, they read them
 * again by those.
 */
const judgedBy =
  (rules: typeof Refusals, create: Build["createCluster"]): Build["createCluster"] =>
  (options, { newMember, ...rest } = {}) =>
    create(options, {
      ...rest,
      ...(newMember && { newMember: (...args) => rejudging(rules, newMember(...args)) }),
    });

function rejudging({ etcdFailure }: typeof Refusals, member: Member): Member {
  const again = (error: unknown): never => {
    const refused = error instanceof errors.EtcdRefusedError;
    throw (refused && etcdFailure(error.details, error.host)) || error;
  };
  return new Proxy(member, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      return (...args: unknown[]): unknown => {
        const result: unknown = Reflect.apply(value, target, args);
        return result instanceof Promise ? result.catch(again) : result;
      };
    },
  });
}
