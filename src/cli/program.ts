#!/usr/bin/env node
// The file that `leasehold` starts. It imports the rest when V8's compile cache is on.
import path from "node:path";

/** Node.js has it from 22.8 on. */
interface CompileCache {
  readonly enableCompileCache?: (folder: string) => unknown;
}

/**
 * V8 runs what it finds there, so it is no folder in which another user can write: neither the system's temporary one, which is the
 * default, nor the home of the user that `sudo` was called by. If it cannot be written, Node.js goes on without. The environment stays
 * as it is, so a command that `run` starts has no cache by this.
 */
function enableCompileCache({ XDG_CACHE_HOME, HOME = "" }: NodeJS.ProcessEnv): void {
  const { enableCompileCache: enable } = process.getBuiltinModule("node:module") as CompileCache;
  const home = XDG_CACHE_HOME || HOME;
  if (!path.isAbsolute(home) || !isOwn(home)) return;
  enable?.(path.join(home, XDG_CACHE_HOME ? "" : ".cache", "leasehold", "v8"));
}

function isOwn(folder: string): boolean {
  try {
    return process.getBuiltinModule("node:fs").statSync(folder).uid === process.getuid?.();
  } catch {
    return false;
  }
}

enableCompileCache(process.env);
const { start } = await import("./main.js");
await start();
