#!/usr/bin/env node
// The file that `leasehold` starts. It imports the rest when V8's compile cache is on.
import path from "node:path";

/** Node.js has it from 22.8 on. */
interface CompileCache {
  readonly enableCompileCache?: (folder: string) => unknown;
}

/** Whether only this user can write there, or where it is to be made. Under sudo, HOME may be that of another user. */
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
 * V8 runs what it finds in the cache, so no other user may write there: it is neither the system's temporary folder, which is the
 * default, nor the home of the user that called `sudo`. Node.js goes on without a cache where it cannot write one. The environment
 * stays as it is, so a command that `run` starts gets no cache by this.
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
