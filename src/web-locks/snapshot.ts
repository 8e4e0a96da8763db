import type { KeyValue } from "../etcd/port.js";
import { parseEntryValue } from "../keys.js";
import type { WebLockMode } from "./arguments.js";
import { heldAndPending, namedPlaceOf } from "./names.js";
import type { RequestRegistry } from "./registry.js";
import type { WebLockClient } from "./request.js";

export interface WebLockInfo {
  name: string;
  mode: WebLockMode;
  /** Of the manager that asked; the lease in hexadecimal digits where another kind of client did. */
  clientId: string;
}

/** Those of one name in the order in which they came. */
export interface WebLockSnapshot {
  held: WebLockInfo[];
  pending: WebLockInfo[];
}

interface Listed {
  readonly info: WebLockInfo;
  readonly mode: WebLockMode;
  /** Of a request of this process. */
  readonly id: string | undefined;
  readonly foreign: boolean;
}

/** `kvs`: all keys below the client's prefix, oldest first. */
export function snapshotOf(
  client: WebLockClient,
  kvs: readonly KeyValue[],
  { live }: RequestRegistry,
): WebLockSnapshot {
  const leaseIds = new Set([...client.connection.leases].map(({ leaseId }) => leaseId));
  const listed = kvs
    .map((kv) => listedOf(client.prefix, kv, leaseIds))
    .filter((place) => place !== undefined)
    // What was given up or released in this process is just being deleted.
    .filter(({ id }) => id === undefined || live.has(id));
  const seen = new Set(listed.map(({ id }) => id));
  // They wait in this process for their turn to enter the queue.
  const outside = [...live.values()].filter(
    ({ pending, id, client: { prefix } }) => pending && prefix === client.prefix && !seen.has(id),
  );
  const queues = queuesOf(listed).map((places) => heldAndPending(places));
  return {
    held: queues.flatMap(({ held }) => infosOf(held)),
    pending: [
      ...queues.flatMap(({ pending }) => infosOf(pending)),
      ...outside.map(({ asked: { name, mode }, client: { clientId } }) => ({ name, mode, clientId })),
    ],
  };
}

function listedOf(prefix: string, kv: KeyValue, leaseIds: ReadonlySet<bigint>): Listed | undefined {
  const place = namedPlaceOf(prefix, kv);
  if (place === undefined) return undefined;
  const { name, mode, foreign } = place;
  const { client, id } = parseEntryValue(kv.value);
  const info = { name, mode, clientId: client ?? kv.leaseId.toString(16) };
  const isRequest = client !== undefined && leaseIds.has(kv.leaseId);
  return { info, mode, foreign, id: isRequest ? id : undefined };
}

function queuesOf(places: readonly Listed[]): readonly (readonly Listed[])[] {
  const byName = new Map<string, Listed[]>();
  for (const place of places) {
    const queue = byName.get(place.info.name);
    if (queue) queue.push(place);
    else byName.set(place.info.name, [place]);
  }
  return [...byName.values()];
}

const infosOf = (places: readonly Listed[]): WebLockInfo[] =>
  places.filter(({ foreign }) => !foreign).map(({ info }) => info);
