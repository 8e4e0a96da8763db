// @ts-check
// What happened in etcd, replayed in the order of its revisions: the record that no process can falsify.

/** @typedef {import("./history.js").Change} Change */
/** @typedef {import("./counter.js").Count} Count */
/**
 * A write of the counter, and the holder of the lock at the revision at which etcd applied it.
 * @typedef {Count & { revision: number, holder: number | undefined }} Written
 */
/**
 * @typedef {object} Replay
 * @property {Written[]} writes of the counter, in order
 * @property {Map<string, number>} created create revision of every key that ever was in the queue
 * @property {string[]} left keys still in the queue at the end
 */

/**
 * @param {readonly Change[]} changes
 * @param {{ lock: string, counter: string }} names
 * @returns {Replay}
 */
export function replay(changes, { lock, counter }) {
  /** @type {Map<string, number>} */
  const queue = new Map();
  /** @type {Replay} */
  const result = { writes: [], created: new Map(), left: [] };
  for (const change of [...changes].sort((a, b) => a.revision - b.revision)) {
    if (change.key.startsWith(`${lock}/`)) applyPlace(change, queue, result.created);
    if (change.key === counter && change.type === "PUT") {
      const holder = queue.size === 0 ? undefined : Math.min(...queue.values());
      result.writes.push({ ...JSON.parse(change.value), revision: change.revision, holder });
    }
  }
  return { ...result, left: [...queue.keys()] };
}

/**
 * @param {Change} change
 * @param {Map<string, number>} queue
 * @param {Map<string, number>} created
 */
function applyPlace({ type, key, create }, queue, created) {
  if (type === "DELETE") return void queue.delete(key);
  queue.set(key, create);
  created.set(`${key}@${create}`, create);
}
