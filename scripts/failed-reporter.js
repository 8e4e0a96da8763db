// A vitest reporter that writes which tests failed, as JSON, to the file that LEASEHOLD_FAILED names: a list of
// { file, tests }. A file that failed outside its tests (in a hook, or while it was loaded) has an empty list of tests.
import { writeFileSync } from "node:fs";

export default class FailedReporter {
  /** @param {readonly import("vitest/node").TestModule[]} modules @param {readonly unknown[]} unhandled */
  onTestRunEnd(modules, unhandled) {
    const failed = modules
      .filter((module) => module.state() === "failed")
      .map((module) => ({
        file: module.relativeModuleId,
        tests: [...module.children.allTests("failed")].map(({ fullName }) => fullName),
      }));
    const path = process.env["LEASEHOLD_FAILED"];
    if (path) writeFileSync(path, JSON.stringify({ failed, unhandled: unhandled.length }));
  }
}
