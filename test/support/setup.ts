// Runs before each file of tests.
import { afterAll, onTestFinished, TestRunner } from "vitest";
import { endWithTests } from "./programs/test-end.js";

// A lost hold is what many tests are about. Each warning of another kind is printed as usual.
const print = process.listeners("warning");
process.removeAllListeners("warning");
process.on("warning", (warning: NodeJS.ErrnoException) => {
  if (warning.code !== "LOCK_LOST") for (const each of print) each(warning);
});

const ofFile: (() => Promise<void>)[] = [];

endWithTests((end) => {
  const test = TestRunner.getCurrentTest();
  // The current one of concurrent tests may be another than the one that has started the process.
  if (test === undefined || test.concurrent) ofFile.push(end);
  else onTestFinished(end);
});

// A worker whose vitest was killed would run on, with all that it has started. vitest does not let it call process.exit.
const die = (): void => void process.kill(process.pid, "SIGKILL");
process.once("disconnect", die);

afterAll(async () => {
  process.off("disconnect", die);
  await Promise.all(ofFile.map((end) => end()));
});
