import { type ServerMember, surroundingsOf } from "./admin.js";
import { startContainers } from "./containers.js";
import { Link } from "./link.js";
import { checkStart, type StartEtcdOptions } from "./options.js";
import { startProcesses } from "./processes.js";
import { type Fleet, RunningEtcd, type TestEtcd } from "./running-etcd.js";

export { startDevEtcd } from "./dev.js";
export { memoryEtcd, type MemoryClient, type MemoryEtcd } from "./memory.js";
export type { DevEtcdOptions, MemoryAuth, MemoryEtcdOptions, StartEtcdOptions } from "./options.js";
export type { Leftovers, Losable, TestEtcd } from "./running-etcd.js";

/**
 * Starts an etcd of your own, for tests: processes of this machine on free ports of 127.0.0.1, with their data in a temporary
 * folder, or containers. Resolves when every member answers. Several test files may do so at once.
 *
 * Without `binary` and `image` it looks for a program `etcd` in the folder that the environment variable LEASEHOLD_ETCD names,
 * then on the PATH, and then in the cache of leasehold's own development (`$XDG_CACHE_HOME/leasehold`). It downloads nothing.
 *
 * The members never outlive this process, however it ends, and they do not keep it alive. With `stop()`, or at the end of an
 * `await using` block, they and their data are removed.
 * @throws {TypeError | RangeError} on bad options.
 * @throws an `Error` that says where it has looked and what to do if there is no etcd, or what etcd has printed if it does not
 *   start. An abort rejects with the signal's reason.
 */
export async function startEtcd(options?: StartEtcdOptions): Promise<TestEtcd> {
  const checked = checkStart(options);
  checked.signal?.throwIfAborted();
  const { image } = checked;
  return linked(await (image === undefined ? startProcesses(checked) : startContainers(image, checked)));
}

async function linked(fleet: Fleet<ServerMember>): Promise<TestEtcd> {
  const links: Link[] = [];
  try {
    for (const member of fleet.members) links.push(await Link.open(() => member.address));
    return new RunningEtcd(fleet, links, surroundingsOf(fleet));
  } catch (error) {
    await Promise.all(links.map((link) => link.close()));
    await fleet.remove();
    throw error;
  }
}
