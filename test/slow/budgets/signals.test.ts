import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { startEtcd } from "../../support/etcd/etcd.js";
import { owned } from "../../support/programs/owned.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/signals-program.js", import.meta.url));
const CALLS = 50_000;
/** `AbortSignal.any` leaves 2.4 to 2.8 KB. */
const MAX_BYTES_EACH = 100;

test("a signal that stops the waits and the work of 50,000 locks keeps nothing of them", async () => {
  await using etcd = await startEtcd();

  const { stdout } = await new Promise<{ stdout: string }>((resolve, reject) => {
    const args = ["--expose-gc", PROGRAM, etcd.endpoints.join(), String(CALLS)];
    owned(execFile(process.execPath, args, (error, stdout) => (error ? reject(error) : resolve({ stdout }))));
  });

  const { bytesEach, listeners } = JSON.parse(stdout) as { bytesEach: number; listeners: number };
  expect(listeners).toBe(0);
  expect(bytesEach).toBeLessThan(MAX_BYTES_EACH);
}, 300_000);
