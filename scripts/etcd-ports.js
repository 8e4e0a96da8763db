// The ports of `npm run etcd`.
import { isFree } from "../test/support/servers/ports.js";

/**
 * The ports of etcd's own examples (its Procfile): 2379, 22379, 32379 for clients, each with the next one for peers.
 * undefined if one of them is taken.
 * @param {number} members
 * @param {(port: number) => Promise<boolean>} [free]
 * @returns {Promise<(readonly [client: number, peer: number])[] | undefined>}
 */
export async function usualPorts(members, free = isFree) {
  const pairs = Array.from({ length: members }, (_, n) => {
    const client = 2379 + (n === 0 ? 0 : 10_000 * (n + 1));
    return /** @type {const} */ ([client, client + 1]);
  });
  const all = await Promise.all(pairs.flat().map((port) => free(port)));
  return all.every(Boolean) ? pairs : undefined;
}
