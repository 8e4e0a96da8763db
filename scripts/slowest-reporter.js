// A vitest reporter that only adds the slowest tests.

const SHOWN = 10;

export default class SlowestReporter {
  /** @param {readonly import("vitest/node").TestModule[]} modules */
  onTestRunEnd(modules) {
    const tests = modules.flatMap((module) =>
      [...module.children.allTests()].filter(hasRun).map((test) => ({
        title: test.fullName,
        file: module.relativeModuleId,
        durationMs: test.diagnostic()?.duration ?? 0,
      })),
    );
    const slowest = tests.sort((a, b) => b.durationMs - a.durationMs).slice(0, SHOWN);
    console.log(`\n The ${slowest.length} slowest of ${tests.length} tests:`);
    for (const { title, file, durationMs } of slowest) {
      console.log(`  ${(durationMs / 1000).toFixed(1).padStart(6)} s  ${title}  (${file})`);
    }
  }
}

/** @param {import("vitest/node").TestCase} test */
function hasRun(test) {
  return ["passed", "failed"].includes(test.result().state);
}
