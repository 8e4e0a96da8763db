import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that take 25 seconds or more, in which they mostly wait. */
export const SLOW = [
  "failover/dead-etcd",
  "tools/chaos",
  "examples/bundles",
  "examples/once-schedulers",
  "crowds/bulk-crowds",
  "crowds/waiter-memory",
  "diagnostics/acquire",
  "diagnostics/log",
  "diagnostics/loggers",
  "security/answers",
  "failover/rejoin-outage",
  "testing/lifetime",
  "conformance/server-lease",
  "session/unnoticed-end",
].map((name) => `test/integration/${name}.test.ts`);

const isSlow = ({ moduleId }: TestSpecification): boolean =>
  SLOW.some((file) => moduleId.endsWith(`/${file}`));

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
