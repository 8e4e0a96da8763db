import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { Guardian } from "./guardian.js";
import { PortTakenError } from "./server-process.js";

const ATTEMPTS = 5;

/** Runs `start` again, with other ports, if another process took one of them between our check and the server's bind. */
export async function withFreshPorts<T>(start: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start();
    } catch (error) {
      if (!(error instanceof PortTakenError) || attempt === ATTEMPTS) throw error;
    }
  }
}

/** A new folder for the data of servers, and the guardian that removes it and them. */
export async function guardedFolder(): Promise<{ readonly folder: string; readonly guardian: Guardian }> {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-etcd-"));
  return { folder, guardian: new Guardian(folder) };
}

/** Starts members at once, because none is ready before most of them run. Rejects when every one has started or failed. */
export async function startAll(starts: readonly Promise<void>[]): Promise<void> {
  const started = await Promise.allSettled(starts);
  const failures = started.flatMap((result) =>
    result.status === "rejected" ? [result.reason as Error] : [],
  );
  const failure = failures.find((error) => error instanceof PortTakenError) ?? failures[0];
  if (failure) throw failure;
}
