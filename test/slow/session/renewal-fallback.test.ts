// `renewal: "worker"` where no thread can be started: the main thread renews.
import { appendFileSync, copyFileSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, test } from "vitest";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Busy } from "../../support/programs/busy.js";

const TTL_SECONDS = 2;
const TTL_MS = TTL_SECONDS * 1000;
const WARNING = /RENEWAL_WORKER_ENDED/g;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const options = () => ({
  hosts: etcd.endpoints,
  session: { ttlSeconds: TTL_SECONDS },
  renewal: "worker" as const,
});

/** A copy of the build, which a deploy may replace. */
function copiedBuild(folder: string): { readonly program: string; readonly thread: string } {
  const copyOf = (file: string, to = file) => {
    copyFileSync(new URL(`../../../dist/${file}`, import.meta.url), path.join(folder, to));
    return path.join(folder, to);
  };
  for (const part of ["leasehold-core.js", "leasehold-client.js"]) copyOf(part);
  const program = pathToFileURL(copyOf("leasehold.js", "leasehold.mjs")).href;
  return { program, thread: copyOf("leasehold-renewal.js") };
}

describe(
  "an idle program keeps its lock, and warns once, with the reason, where",
  { concurrent: true },
  () => {
    test.for([
      ["the files were replaced by a deploy", "file", /Cannot find module/],
      ["the working directory was deleted", "folder", /ENOENT/],
    ] as const)("%s", async ([, what, reason], { expect, onTestFinished }) => {
      const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-gone-"));
      onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
      const { program, thread } = copiedBuild(folder);
      const env =
        what === "file"
          ? { LEASEHOLD_PROGRAM: program, GONE_AFTER_CONNECT: thread }
          : { GONE_AFTER_CONNECT: folder };
      await using idle = await Busy.start(options(), `gone/${what}`, env, folder);
      const held = await placesOf(etcd.member, `gone/${what}`);
      const after = await idle.idle(3 * TTL_MS);

      expect(await placesOf(etcd.member, `gone/${what}`)).toEqual(held);
      expect(after).toMatchObject({ held: true, aborted: false });
      expect(idle.warnings.match(WARNING)).toHaveLength(1);
      expect(idle.warnings).toMatch(reason);
    });
  },
);

test("a thread that renews no longer and does not end costs no lock, and not even a jeopardy", async ({
  expect,
  onTestFinished,
}) => {
  const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-stuck-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { program, thread } = copiedBuild(folder);
  appendFileSync(
    thread,
    "\nsetTimeout(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0), 1000);",
  );
  // The main thread renews at 45 % of the TTL, and the jeopardy begins at half of it: a busy machine needs some time between.
  const session = { ttlSeconds: 5 * TTL_SECONDS };
  await using idle = await Busy.start({ ...options(), session }, "stuck", { LEASEHOLD_PROGRAM: program });
  const after = await idle.idle(8 * TTL_MS);

  expect(await placesOf(etcd.member, "stuck")).toHaveLength(1);
  expect(after).toMatchObject({ held: true, aborted: false, states: [] });
});
