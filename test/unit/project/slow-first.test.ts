import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import type { TestProject, TestSpecification, Vitest } from "vitest/node";
import { SLOW, SlowFirst } from "../../support/slow-first.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const [SLOWEST = "", OTHER = ""] = SLOW;

const projectOf = (name: string, groupOrder: number) =>
  ({ name, config: { sequence: { groupOrder }, isolate: false } }) as TestProject;

const specOf = (project: TestProject, file: string) =>
  ({ project, moduleId: `${ROOT}${file}` }) as TestSpecification;

/** Of a first run: no duration is known, and no size. */
const fresh = {
  config: { root: ROOT },
  cache: { getFileTestResults: () => undefined, getFileStats: () => undefined },
} as unknown as Vitest;

it.each(SLOW)("knows a file that exists: %s", (file) => {
  expect(existsSync(ROOT + file)).toBe(true);
});

it("puts the slow files of each project before its others, and leaves the projects in their order", async () => {
  const [first, second] = [projectOf("unit", 0), projectOf("all", 1)];
  const files = [
    specOf(second, "test/integration/locks/mutex.test.ts"),
    specOf(second, OTHER),
    specOf(first, "test/unit/keys.test.ts"),
    specOf(second, SLOWEST),
    specOf(first, "test/unit/fence.test.ts"),
  ];

  const sorted = await new SlowFirst(fresh).sort(files);

  expect(sorted).toEqual([files[2], files[4], files[1], files[3], files[0]]);
});
