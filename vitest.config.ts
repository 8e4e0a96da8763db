import os from "node:os";
import { defineConfig } from "vitest/config";
import { filesThatNeedEtcd } from "./scripts/needs-etcd.js";
import { SlowFirst } from "./test/support/slow-first.js";
import { transportEnv, transportPlugin } from "./test/support/transport.js";

/** Folders whose tests need more than Node.js and etcd. The script of each sets the variable when it has found what they need. */
const APART: Readonly<Record<string, string>> = {
  browser: "LEASEHOLD_BROWSER",
  "cli-loss": "LEASEHOLD_CLI_LOSS",
  "cli-scale": "LEASEHOLD_CLI_SCALE",
  docker: "LEASEHOLD_ETCD_IMAGE",
  ipv6: "LEASEHOLD_IPV6",
  proxies: "LEASEHOLD_PROXIES",
  redis: "LEASEHOLD_REDIS",
};
const apart = Object.keys(APART).filter((folder) => process.env[APART[folder] ?? ""] !== undefined);

/** Tests that count requests, which a busy machine repeats: few run at once, after all others. */
const ALONE = ["test/integration/budgets/*.test.ts", "test/integration/batching/counts.test.ts"];
/** Tests that compare speeds or measure memory: they run one by one, after all others. */
const SLOW_ALONE = [
  "test/slow/budgets/*.test.ts",
  "test/slow/{crowds/{crowds,watches-bulk},locks/handover,election/lead-crowds,inspect/many-waiters,cli/demo}.test.ts",
  ...(process.env["LEASEHOLD_CROWDS"] === "large"
    ? ["test/slow/crowds/{bulk-crowds,waiter-memory}.test.ts"]
    : []),
];

/** What this machine cannot run: `npm test` says so. And what `.ci/run` leaves to other commits. */
const LEFT_OUT = [
  ...(process.env["LEASEHOLD_WITHOUT_ETCD"] === "1" ? filesThatNeedEtcd() : []),
  ...(process.env["LEASEHOLD_LEFT_OUT"] ?? "").split(" ").filter((pattern) => pattern !== ""),
];

/** Tests restore the global state that they change, so one process runs many files and loads each module once. */
const project = (name: string, groupOrder: number, test: { include: string[]; maxWorkers?: number }) => ({
  extends: true as const,
  test: {
    name,
    isolate: false,
    exclude: [...LEFT_OUT, ...(name.endsWith("alone") ? [] : [...ALONE, ...SLOW_ALONE])],
    sequence: { groupOrder },
    ...test,
  },
});

export default defineConfig({
  plugins: [transportPlugin],
  test: {
    env: transportEnv(),
    setupFiles: ["test/support/setup.ts"],
    pool: "forks",
    // etcd members and worker processes share the machine with the tests
    maxWorkers: 6,
    sequence: { sequencer: SlowFirst },
    testTimeout: 30_000,
    hookTimeout: 30_000,
    teardownTimeout: 10_000,
    // what is polled for is delayed when the machine is busy
    expect: { poll: { timeout: 10_000 } },
    allowOnly: false,
    coverage: {
      provider: "v8",
      include: ["src/**/*.ts"],
      reporter: ["text-summary"],
      reportOnFailure: true,
      reportsDirectory: "coverage",
    },
    // `npm test` runs the first three, `npm run test:all` all but "apart".
    projects: [
      // These only compute: more processes than cores would load each module more often.
      project("unit", 0, {
        include: ["test/unit/**/*.test.ts"],
        maxWorkers: Math.min(6, os.availableParallelism()),
      }),
      // These mostly wait: on two cores, twelve at a time take a seventh less time than eight.
      // Projects of one group share their number of workers, so these are a group of their own.
      project("integration", 1, {
        include: ["test/{integration,interop}/**/*.test.ts"],
        maxWorkers: 12,
      }),
      project("alone", 3, { include: ALONE, maxWorkers: 3 }),
      project("slow", 2, { include: ["test/slow/**/*.test.ts"] }),
      project("meta", 2, { include: ["test/{meta,package}/**/*.test.ts"] }),
      project("slow-alone", 4, { include: SLOW_ALONE, maxWorkers: 1 }),
      project("apart", 2, { include: apart.map((folder) => `test/${folder}/**/*.test.ts`) }),
    ],
  },
});
