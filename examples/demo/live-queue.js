// @ts-check

/** @typedef {{ owner: string, fence: number }} QueuePlace */

/** The queue of one lock in etcd, kept up to date by a watch: by create revision, the holder first. */
export class LiveQueue {
  #prefix;
  /** @type {Map<string, QueuePlace>} */
  #byKey = new Map();

  /** @param {string} lock */
  constructor(lock) {
    this.#prefix = `${lock}/`;
  }

  /** @returns {QueuePlace[]} */
  get places() {
    return [...this.#byKey.values()].sort((a, b) => a.fence - b.fence);
  }

  /**
   * @param {Pick<import("./history.js").Change, "type" | "key" | "create" | "value">} change
   * @returns {boolean} whether it was about this queue
   */
  apply({ type, key, create, value }) {
    if (!key.startsWith(this.#prefix)) return false;
    if (type === "DELETE") this.#byKey.delete(key);
    else this.#byKey.set(key, { owner: ownerOf(value), fence: create });
    return true;
  }
}

/** @param {string} value */
function ownerOf(value) {
  try {
    return String(JSON.parse(value).owner);
  } catch {
    return "?"; // a place put by another client, whose value may have any format
  }
}
