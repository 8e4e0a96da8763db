/** @import { Place, ServerEvent, Setting } from "./history.js" */

/**
 * etcd's own account of every queue: each place with the revision at which it came to the head.
 * @param {readonly ServerEvent[]} server by revision
 * @param {Setting} setting
 * @returns {Map<string, Place[]>} per lock, in create order
 */
export function placesOf(server, setting) {
  /** @type {Map<string, Place[]>} */
  const byLock = new Map();
  /** @type {Map<string, Place>} */
  const living = new Map();
  for (const event of server) {
    if (!event.key.startsWith(setting.locks)) continue;
    if (event.type === "DELETE") end(living, event);
    // A put on a living key (same create revision) changes its value, not its place.
    else if (living.get(event.key)?.create !== event.create) begin(byLock, living, event);
  }
  for (const places of byLock.values()) findHeads(places);
  return byLock;
}

/** @param {Map<string, Place[]>} byLock @param {Map<string, Place>} living @param {ServerEvent} event */
function begin(byLock, living, event) {
  const lock = event.key.slice(0, event.key.lastIndexOf("/"));
  const place = {
    ...{ lock, key: event.key, lease: event.lease, owner: ownerIn(event.value) },
    ...{ create: event.create, seen: event.tSeen, deleted: undefined, deletedSeen: undefined },
    ...{ headSince: undefined, headSeen: undefined },
  };
  living.set(event.key, place);
  const places = byLock.get(lock);
  if (places === undefined) byLock.set(lock, [place]);
  else places.push(place);
}

/** @param {Map<string, Place>} living @param {ServerEvent} event */
function end(living, event) {
  const place = living.get(event.key);
  if (place === undefined) return;
  place.deleted = event.rev;
  place.deletedSeen = event.tSeen;
  living.delete(event.key);
}

/** @param {Place[]} places in create order */
function findHeads(places) {
  /** @type {{ rev: bigint, seen: bigint } | undefined} the last deletion among the older places */
  let cleared = { rev: 0n, seen: 0n };
  for (const place of places) {
    if (cleared === undefined) return;
    const own = cleared.rev <= place.create;
    const since = own ? place.create : cleared.rev;
    if (place.deleted === undefined || place.deleted > since) {
      place.headSince = since;
      place.headSeen = own ? place.seen : cleared.seen;
    }
    if (place.deleted === undefined) cleared = undefined;
    else if (place.deleted > cleared.rev)
      cleared = { rev: place.deleted, seen: place.deletedSeen ?? place.seen };
  }
}

/** @param {string} value */
function ownerIn(value) {
  try {
    const owner = JSON.parse(value)?.owner;
    return typeof owner === "string" ? owner : undefined;
  } catch {
    return undefined;
  }
}
