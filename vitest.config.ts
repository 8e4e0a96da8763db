import os from "node:os";
import { defineConfig } from "vitest/config";
import { SlowFirst } from "./test/support/slow-first.js";
import { transportEnv, transportPlugin } from "./test/support/transport.js";

/** Set by scripts/docker-tests.js: only then is there a docker engine. */
const inDocker = process.env["LEASEHOLD_ETCD_IMAGE"] !== undefined;
/** Set by scripts/redis-tests.js: only then do tests use a Redis. */
const withRedis = process.env["LEASEHOLD_REDIS"] !== undefined;
/** Set by scripts/proxy-tests.js: only then do tests use nginx and HAProxy. */
const withProxies = process.env["LEASEHOLD_PROXIES"] !== undefined;
/** Set by scripts/browser-tests.js: only then is there a browser. */
const withBrowser = process.env["LEASEHOLD_BROWSER"] !== undefined;
/** Set by scripts/ipv6-tests.js: only then does this machine have an IPv6 loopback. */
const withIpv6 = process.env["LEASEHOLD_IPV6"] !== undefined;
/** Set by scripts/cli-scale-tests.js: only then does the program run with thousands of locks. */
const atScale = process.env["LEASEHOLD_CLI_SCALE"] !== undefined;
/** The number of rounds, set by scripts/cli-loss-tests.js: only then do tests lose locks of `leasehold run` many times. */
const withCliLoss = process.env["LEASEHOLD_CLI_LOSS"] !== undefined;

/** Tests that compare speeds, measure memory, count calls or need every core: they run one by one, after all others. */
const ALONE = [
  "test/integration/budgets/*.test.ts",
  "test/unit/sim/seeds.test.ts",
  "test/integration/{crowds/{crowds,watches-bulk},locks/handover,batching/counts,election/lead-crowds}.test.ts",
  "test/integration/inspect/many-waiters.test.ts",
  ...(process.env["LEASEHOLD_CROWDS"] === "large"
    ? ["test/integration/crowds/{bulk-crowds,waiter-memory}.test.ts"]
    : []),
];
/**
 * Slow tests that exercise neither etcd nor Node.js in new ways: the tests of the project's own tools, hostile answers,
 * crowds whose figures depend on the machine. Omitted where the suite runs again with other versions.
 */
const ONCE = [
  "test/unit/{lab,project,sim}/**/*.test.ts",
  "test/unit/**/fuzz-*.test.ts",
  "test/integration/{docs,examples,testing}/*.test.ts",
  "test/integration/{tools/etcd-cli,cli/run-command,session/unnoticed-end}.test.ts",
  "test/integration/{docs/*,security/{answers,events,names,options,secrets}}.test.ts",
  "test/integration/{tools/{chaos,etcd-module},crowds/{bulk-crowds,waiter-memory},multi-lock/many}.test.ts",
  "test/integration/failover/{refusals,refused-callers}.test.ts",
  "test/integration/{sim/page,ui/*,cli/{completion,doctor*,json,observe,queues,release,top}}.test.ts",
  "test/integration/diagnostics/{log,loggers,otel,otel-faults}.test.ts",
  "test/integration/{locks/repeated-requests,batching/chaos,session/{time-limits,slow-link}}.test.ts",
];
const LEFT_OUT = process.env["LEASEHOLD_SUITE"] === "versions" ? ONCE : [];
/** What a script of its own runs; `npm test` runs the rest. */
const APART = [
  ...[inDocker && "docker", withRedis && "redis", withProxies && "proxies", withIpv6 && "ipv6"],
  atScale && "cli-scale",
  withCliLoss && "cli-loss",
  withBrowser && "browser",
].find((folder) => folder !== false);
const FOLDERS = APART ?? "{integration,interop}";
const ALL = [`test/${FOLDERS}/**/*.test.ts`];
const UNIT = APART !== undefined ? [] : ["test/unit/**/*.test.ts"];

export default defineConfig({
  plugins: [transportPlugin],
  test: {
    env: transportEnv(),
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
    projects: [
      {
        extends: true,
        // Tests restore the global state that they change, so one process runs many files and loads each module once. With isolation,
        // loading takes a third of the CPU time of the suite.
        test: {
          name: "unit",
          include: UNIT,
          exclude: [...ALONE, ...LEFT_OUT],
          isolate: false,
          // Nearly all of these tests only compute. More processes than cores would load and compile each module more often, and would
          // delay each other.
          maxWorkers: Math.min(6, os.availableParallelism()),
          testTimeout: 120_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: "all",
          include: ALL,
          exclude: [...ALONE, ...LEFT_OUT],
          isolate: false,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: "alone",
          include: ALONE,
          exclude: LEFT_OUT,
          isolate: false,
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
