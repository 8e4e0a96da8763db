// A vitest reporter: one line of progress, the failures, a summary and the slowest tests. Writes which tests failed, as JSON, to
// the file that LEASEHOLD_FAILED names: a file that failed outside its tests (in a hook, or while it was loaded) has an empty
// list of tests.
import { writeFileSync } from "node:fs";
import { MinimalReporter } from "vitest/node";

const SHOWN = 5;
/** Between two lines of progress where no terminal can overwrite the last one. */
const PAUSE_MS = 15_000;

/** @typedef {import("vitest/node").TestModule} TestModule */

export default class TestReporter extends MinimalReporter {
  #files = { all: 0, ended: 0 };
  #tests = { passed: 0, failed: 0 };
  #startedAt = 0;
  #shownAt = 0;
  #terminal = process.stdout.isTTY === true;

  /** @override @param {readonly import("vitest/node").TestSpecification[]} specifications */
  onTestRunStart(specifications) {
    super.onTestRunStart(specifications);
    this.#files.all = specifications.length;
    this.#startedAt = this.#shownAt = performance.now();
  }

  /** @override @param {import("vitest/node").TestCase} test */
  onTestCaseResult(test) {
    super.onTestCaseResult(test);
    const { state } = test.result();
    if (state === "passed" || state === "failed") this.#tests[state]++;
    this.#progress();
  }

  /** @override @param {TestModule} module */
  onTestModuleEnd(module) {
    if (this.#terminal) process.stdout.write("\r\x1b[K");
    super.onTestModuleEnd(module);
    this.#files.ended++;
    this.#progress();
  }

  /**
   * @override
   * @param {readonly TestModule[]} modules
   * @param {readonly import("@vitest/utils").SerializedError[]} errors
   * @param {import("vitest/node").TestRunEndReason} reason
   */
  onTestRunEnd(modules, errors, reason) {
    if (this.#terminal) process.stdout.write("\r\x1b[K");
    super.onTestRunEnd(modules, errors, reason);
    const seconds = Math.round((performance.now() - this.#startedAt) / 1000);
    const failedFiles = modules.filter((module) => module.state() === "failed");
    this.#slowest(modules);
    const { passed, failed } = this.#tests;
    const outside = failed === 0 && (failedFiles.length > 0 || errors.length > 0);
    console.log(
      `\n${passed} tests passed, ${failed} failed${outside ? ", with errors outside of tests" : ""}, in ${modules.length} files and ${seconds} s.`,
    );
    const path = process.env["LEASEHOLD_FAILED"];
    // A test that failed left its promises without an owner: an error of that file tells nothing more.
    const unhandled = errors.filter((error) =>
      failedFiles.every(({ moduleId }) => moduleId !== error["VITEST_TEST_PATH"]),
    );
    if (path)
      writeFileSync(
        path,
        JSON.stringify({ failed: failedFiles.map(failuresOf), unhandled: unhandled.length }),
      );
  }

  #progress() {
    const now = performance.now();
    if (now - this.#shownAt < (this.#terminal ? 100 : PAUSE_MS)) return;
    this.#shownAt = now;
    const seconds = Math.round((now - this.#startedAt) / 1000);
    const { all, ended } = this.#files;
    const { passed, failed } = this.#tests;
    const line = `${seconds} s: ${ended} of ${all} files, ${passed} tests passed, ${failed} failed`;
    process.stdout.write(this.#terminal ? `\r\x1b[K${line}` : `${line}\n`);
  }

  /** @param {readonly TestModule[]} modules */
  #slowest(modules) {
    const tests = modules.flatMap((module) =>
      [...module.children.allTests()].map((test) => ({
        title: test.fullName,
        file: module.relativeModuleId,
        seconds: (test.diagnostic()?.duration ?? 0) / 1000,
      })),
    );
    if (tests.length <= SHOWN) return;
    console.log(`The ${SHOWN} slowest:`);
    for (const { title, file, seconds } of tests.sort((a, b) => b.seconds - a.seconds).slice(0, SHOWN))
      console.log(`${seconds.toFixed(1).padStart(6)} s  ${title}  (${file})`);
  }
}

/** @param {TestModule} module */
function failuresOf(module) {
  const tests = [...module.children.allTests("failed")].map(({ fullName }) => fullName);
  return { file: module.relativeModuleId, tests };
}
