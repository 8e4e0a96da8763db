import type * as Leasehold from "../../../src/index.js";
import type { createCluster } from "../../../src/session/connect.js";

/** The code under test: the sources, or a build in which a rule is broken. */
export interface Build {
  readonly leasehold: typeof Leasehold;
  readonly createCluster: typeof createCluster;
}

export async function sources(): Promise<Build> {
  const [leasehold, { createCluster }] = await Promise.all([
    import("../../../src/index.js"),
    import("../../../src/session/connect.js"),
  ]);
  return { leasehold, createCluster };
}
