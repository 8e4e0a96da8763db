import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/{unit,integration,interop}/**/*.test.ts"],
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
