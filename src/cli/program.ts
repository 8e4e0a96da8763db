#!/usr/bin/env node
// The file that `leasehold` starts. It imports the rest when V8's compile cache is on.
import path from "node:path";

/** Node.js has it from 22.8 on. */
interface CompileCache {
  readonly enableCompileCache?: (folder: string) => unknown;
}

/** Only this user can write there, or where it is to be made: under sudo, HOME may be that of another user. */
function isOwn(folder: string): boolean {
  try {
    const found = process.getBuiltinModule("node:fs").statSync(folder, { throwIfNoEntry: false });
    if (!found) return isOwn(path.dirname(folder));
    return found.uid === process.getuid?.() && (found.mode & 0o002) === 0;
  } catch {
    return false;
  }
}

/**
 * V8 runs what it finds there, so it is no folder in which another user can write: neither the system's temporary one, which is the
 * default, nor the home of the user that `sudo` was called by. If it cannot be written, Node.js goes on without. The environment stays
 * as it is, so a command that `run` starts has no cache by this.
 */
function enableCompileCache({ XDG_CACHE_HOME, HOME = "" }: NodeJS.ProcessEnv): void {
  const { enableCompileCache: enable } = process.getBuiltinModule("node:module") as CompileCache;
  const folder = XDG_CACHE_HOME || path.join(HOME, ".cache");
  if (!path.isAbsolute(folder)) return;
  const cache = path.join(folder, "leasehold", "v8");
  if (isOwn(cache)) enable?.(cache);
}

enableCompileCache(process.env);
const { start } = await import("./main.js");
await start();
