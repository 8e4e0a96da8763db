// LEASEHOLD_TRANSPORT chooses the transport of a test run, in each process that the run starts, and in nothing else.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-transport-"));

/** Prints the default transport of the sources, of the build, of the build in a process of its own, and of the package. */
const PROGRAM = `
import { execFileSync } from "node:child_process";
const from = async (file: string) =>
  (await import(new URL(file, ${JSON.stringify(new URL("../../../", import.meta.url).href)}).href)).DEFAULT_TRANSPORT;
const options = "options/default-transport";
/** The options of gRPC belong to etcd3. */
const packaged = async () => {
  const { connect } = await import("${ROOT}dist/leasehold.js");
  try {
    return (connect({ hosts: "127.0.0.1:1", grpcOptions: {} }), "etcd3");
  } catch {
    return "http2";
  }
};
const code = \`import("${ROOT}dist/\${options}.js").then((m) => console.log(m.DEFAULT_TRANSPORT))\`;
const child = execFileSync(process.execPath, ["-e", code], { encoding: "utf8" }).trim();
console.log(JSON.stringify([await from(\`src/\${options}.ts\`), await from(\`dist/\${options}.js\`), child, await packaged()]));
`;

function defaults(transport: string | undefined): unknown {
  const file = path.join(folder, "program.mts");
  writeFileSync(file, PROGRAM);
  const env: NodeJS.ProcessEnv = { ...process.env, NODE_OPTIONS: "" };
  delete env["LEASEHOLD_TRANSPORT"];
  const chosen = transport === undefined ? {} : { LEASEHOLD_TRANSPORT: transport };
  const told = execFileSync(process.execPath, [path.join(ROOT, "scripts/ts.js"), file], {
    ...{ env: { ...env, ...chosen }, encoding: "utf8", timeout: 25_000 },
  });
  return JSON.parse(told);
}

beforeAll(() => {
  execFileSync(process.execPath, [path.join(ROOT, "scripts/build.js")], { timeout: 120_000 });
}, 130_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("LEASEHOLD_TRANSPORT", () => {
  it.each(["http2", "etcd3"])(
    "makes %s the default of the sources, the build, child processes and the package",
    (name) => {
      expect(defaults(name)).toEqual([name, name, name, name]);
    },
  );

  it("changes nothing where it is not set", () => {
    expect(defaults(undefined)).toEqual(["http2", "http2", "http2", "http2"]);
  });
});
