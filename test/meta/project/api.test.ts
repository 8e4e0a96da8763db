// The types of src/index.ts against test/support/fixtures/contract.ts, which states the promise independently.
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import * as leasehold from "../../../src/index.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

const IMPORTS = `
import type * as contract from "./support/fixtures/contract.js";
import type * as leasehold from "../src/index.js";
`;

/** Types that users pass in, or switch over, must be assignable in both directions: wider is as wrong as narrower. */
const SAME = [
  "ConnectOptions",
  "Logger",
  "ClusterHealth",
  "ClusterSnapshot",
  "Credentials",
  "CloseOptions",
  "SessionOptions",
  "WaitOptions",
  "QueueWaitOptions",
  "WorkOptions",
  "SessionState",
  "RenewalReport",
  "SessionStateEvent",
  "Hold",
  "Lock",
  "MultiLock",
  "OnceOptions",
  "OnceRun",
  "Leader",
  "Leadership",
  "LeadOptions",
  "WebLock",
  "WebLockOptions",
  "WebLockInfo",
  "WebLockSnapshot",
  "Contender",
  "QueueState",
  "QueueKind",
  "LockSummary",
  "LockPage",
  "LimitOption",
  "ListOptions",
  "WatchQueueOptions",
  "Loss",
  "LeaseholdErrorCode",
];
const TYPES = `
type Same<N, A, B> = [A] extends [B] ? ([B] extends [A] ? true : [N, "asks for more"]) : [N, "gives less"];
${SAME.map((name) => `export const same${name}: Same<"${name}", leasehold.${name}, contract.${name}> = true;`).join("\n")}
`;

const program = (source: string): string[] => {
  const file = path.join(ROOT, "test", "contract-check.ts");
  const options: ts.CompilerOptions = {
    module: ts.ModuleKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts"],
    types: ["node"],
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: true,
    noEmit: true,
  };
  const host = ts.createCompilerHost(options);
  const disk = { ...host };
  host.fileExists = (name) => name === file || disk.fileExists(name);
  host.readFile = (name) => (name === file ? source : disk.readFile(name));
  host.getSourceFile = (name, language) =>
    name === file ? ts.createSourceFile(name, source, language) : disk.getSourceFile(name, language);
  const made = ts.createProgram([file], options, host);
  return made
    .getSemanticDiagnostics(made.getSourceFile(file))
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));
};

describe("the public API", () => {
  it("can be used as what was promised, and takes what was promised", () => {
    const values = `
      declare const actual: typeof leasehold;
      export const promised: typeof contract = actual;
    `;

    expect(program(`${IMPORTS}${TYPES}${values}`)).toEqual([]);
  }, 60_000);

  it("is compared by a check that notices a difference", () => {
    const wrong = `
      declare const actual: Omit<typeof leasehold, "Mutex"> & { Mutex: new (name: string) => leasehold.Mutex };
      export const promised: typeof contract = actual;
      type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
      export const loss: Same<leasehold.Loss | "forgotten", contract.Loss> = true;
    `;

    expect(program(`${IMPORTS}${wrong}`)).toHaveLength(2);
  }, 60_000);

  it("has no sessions and clusters but those that its functions make", () => {
    const source = `
      import { Cluster, Session } from "../src/index.js";
      export const made = [new Cluster(), new Session()];
    `;

    expect(program(source).filter((message) => message.includes("is private"))).toHaveLength(2);
  }, 60_000);

  it("exports these values and no others", () => {
    expect(Object.keys(leasehold).sort()).toEqual([
      "Cluster",
      "ClusterLockManager",
      "DeadlockError",
      "Election",
      "EtcdRefusedError",
      "EtcdUnavailableError",
      "FenceGate",
      "KindMismatchError",
      "LeaseholdError",
      "LockExpiringError",
      "LockLostError",
      "LockReleasedError",
      "LockTimeoutError",
      "Mutex",
      "RwLock",
      "Semaphore",
      "Session",
      "SessionClosedError",
      "SessionLostError",
      "StaleFenceError",
      "connect",
      "forceRelease",
      "fromEnv",
      "inspect",
      "isLeaseholdError",
      "lead",
      "list",
      "lockAll",
      "lockName",
      "once",
      "watchQueue",
      "whileHeld",
    ]);
  });
});
