import { BaseSequencer, type TestSpecification } from "vitest/node";

const INTEGRATION = [
  ...["cli/run", "cli/queues", "cli/errors", "failover/outage", "session/renewal-worker"],
  ...["session/closing-refused", "session/exit", "session/loss", "web-locks/deviations"],
];
const SLOWEST = [
  ...["testing/faults", "failover/lost-replies", "cli/run-once", "cli/run-loss", "cli/width"],
  ...["security/hostile-keys", "diagnostics/loggers", "failover/dead-etcd", "crowds/bulk-crowds"],
  ...["crowds/waiter-memory", "failover/rejoin-outage", "diagnostics/acquire", "diagnostics/log"],
  ...["security/answers", "testing/processes", "testing/lifetime", "conformance/server-lease"],
  ...["session/unnoticed-end", "session/slow-apply", "failover/members", "failover/exchanged-members"],
  ...["election/standing-still", "auth/guardian-rotation", "auth/renewal-rotation", "session/restore"],
];
const META = [
  ...["package/bundles", "meta/examples/once-schedulers", "meta/sim/trace", "meta/lab/model"],
  ...["package/package", "meta/docs/mistakes", "meta/examples/nightly", "meta/fidelity/auth"],
];

/** The files that take twelve seconds or more, in which they mostly wait. */
const SLOW = [
  ...INTEGRATION.map((name) => `integration/${name}`),
  ...SLOWEST.map((name) => `slow/${name}`),
  ...META,
].map((name) => `/test/${name}.test.ts`);

const isSlow = ({ moduleId }: TestSpecification): boolean => SLOW.some((file) => moduleId.endsWith(file));

/**
 * Puts the slow files first, so that none of them runs alone at the end. Vitest orders files by their last durations. In a fresh clone
 * it has none and orders them by size, and some slow files are small.
 */
export class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const projects = [...new Set(sorted.map(({ project }) => project))];
    return projects.flatMap((project) => {
      const own = sorted.filter((each) => each.project === project);
      return [...own.filter(isSlow), ...own.filter((each) => !isSlow(each))];
    });
  }
}
