import { defineConfig } from "vitest/config";

/** Set by test/support/docker-tests.js: only there is a docker engine. */
const inDocker = process.env["LEASEHOLD_ETCD_IMAGE"] !== undefined;

export default defineConfig({
  test: {
    include: [inDocker ? "test/docker/**/*.test.ts" : "test/{unit,integration,interop}/**/*.test.ts"],
    pool: "forks",
    // etcd members and worker processes share the machine with the tests
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    teardownTimeout: 10_000,
    globals: false,
    allowOnly: false,
    coverage: {
      provider: "v8",
      include: ["src/**/*.ts"],
      reporter: ["text"],
      reportsDirectory: "coverage",
    },
  },
});
