import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { inCache } from "../../../support/etcd-cache.js";
import { explain } from "../../../support/etcd-go.js";
import { NotRunError } from "../../lab/ground.js";

const run = promisify(execFile);
const FOLDER = fileURLToPath(new URL("./", import.meta.url));
const PROGRAM = "rivals";

/** The built program beside this file, from the cache; rejects with a `NotRunError` where it cannot be built. */
export async function goProgram(): Promise<string> {
  const hash = createHash("sha256");
  const files = readdirSync(FOLDER).filter((file) => /\.(go|mod|sum)$/.test(file));
  for (const file of files.sort()) hash.update(`${file}\0`).update(readFileSync(path.join(FOLDER, file)));
  const name = `${PROGRAM}-go-${hash.digest("hex").slice(0, 16)}-${process.arch}`;
  const folder = await inCache(name, process.env, build).catch((error: unknown) => {
    throw new NotRunError(explain(error), { cause: error });
  });
  return path.join(folder, PROGRAM);
}

async function build(into: string): Promise<void> {
  const env = { ...process.env, GOWORK: "off", GOFLAGS: "-mod=readonly" };
  const args = ["build", "-buildvcs=false", "-o", path.join(into, PROGRAM), "."];
  await run("go", args, { cwd: FOLDER, env, timeout: 400_000, maxBuffer: 16 << 20 });
}

/** Such as "v3.7.3". */
export function goClientVersion(): string {
  const required = readFileSync(path.join(FOLDER, "go.mod"), "utf8");
  return /etcd\/client\/v3 (v\S+)/.exec(required)?.[1] ?? "?";
}
