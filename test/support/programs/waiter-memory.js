// The memory cost of a waiter: `node scripts/ready.js test/support/programs/waiter-memory.js [COUNT] [HEAP_MB]`, after
// a build.
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { startEtcd } from "../etcd/etcd.js";
import { owned } from "./owned.js";
import { Said } from "./said.js";

const PROGRAM = fileURLToPath(new URL("./waiters-program.js", import.meta.url));
/** Operations in one transaction. */
const MAX_PUTS = 100;

/** @typedef {import("../etcd/etcd.js").EtcdCluster} EtcdCluster */
/** @typedef {"one name" | "semaphore" | "names"} Kind */

/**
 * Heap bytes per waiter, for `count` waiters in a separate process.
 * @param {EtcdCluster} etcd @param {Kind} kind @param {number} count
 * @param {number} [heapMb] limit of that process's heap
 * @returns {Promise<number>} @throws when the process dies, as it does when its heap is too small
 */
export async function waiterBytes(etcd, kind, count, heapMb) {
  const name = `waiters/${kind}`;
  const names = kind === "names" ? Array.from({ length: count }, (_, n) => `${name}/${n}`) : [name];
  await occupy(etcd, names);
  const limit = heapMb === undefined ? [] : [`--max-old-space-size=${heapMb}`];
  const child = owned(
    fork(PROGRAM, [etcd.endpoints.join(), kind, String(count), name], {
      execArgv: ["--expose-gc", ...limit],
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    }),
  );
  const said = new Said(child);
  const { bytesEach } = /** @type {{ bytesEach: number }} */ (await said.next());
  child.kill("SIGKILL");
  await said.ended;
  return bytesEach;
}

/** Another client holds each of the names. @param {EtcdCluster} etcd @param {readonly string[]} names */
async function occupy(etcd, names) {
  const encode = (/** @type {string} */ text) => Buffer.from(text).toString("base64");
  for (let n = 0; n < names.length; n += MAX_PUTS) {
    const success = names
      .slice(n, n + MAX_PUTS)
      .map((name) => ({ requestPut: { key: encode(`${name}/1`), value: "" } }));
    await etcd.member.gateway("/v3/kv/txn", { success });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [count = "20000", heapMb] = process.argv.slice(2);
  const etcd = await startEtcd();
  for (const kind of /** @type {const} */ (["one name", "semaphore", "names"])) {
    const bytes = await waiterBytes(
      etcd,
      kind,
      Number(count),
      heapMb === undefined ? undefined : Number(heapMb),
    );
    console.log(`${count} waiters, ${kind}: ${bytes} bytes of heap each`);
  }
  await etcd.stop();
}
