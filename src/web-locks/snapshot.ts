import type { KeyValue } from "../etcd/port.js";
import { parseEntryValue } from "../keys.js";
import type { WebLockMode } from "./arguments.js";
import { heldAndPending, namedEntryOf } from "./names.js";
import type { RequestRegistry } from "./registry.js";
import type { WebLockClient } from "./request.js";

export interface WebLockInfo {
  name: string;
  mode: WebLockMode;
  /** Client ID of the requesting manager; for another kind of client, its lease ID in hexadecimal digits. */
  clientId: string;
}

/** The requests of one name are in the order of their arrival. */
export interface WebLockSnapshot {
  held: WebLockInfo[];
  pending: WebLockInfo[];
}

interface Listed {
  readonly info: WebLockInfo;
  readonly mode: WebLockMode;
  /** ID of a request of this process; undefined for other entries. */
  readonly id: string | undefined;
  readonly foreign: boolean;
}

/** `kvs`: all keys below the client's prefix, oldest first. */
export function snapshotOf(
  client: WebLockClient,
  kvs: readonly KeyValue[],
  { live }: RequestRegistry,
): WebLockSnapshot {
  const leaseIds = new Set([...client.services.leases].map(({ leaseId }) => leaseId));
  const listed = kvs
    .map((kv) => listedOf(client.prefix, kv, leaseIds))
    .filter((entry) => entry !== undefined)
    // An entry that this process has given up or released is already being deleted.
    .filter(({ id }) => id === undefined || live.has(id));
  const seen = new Set(listed.map(({ id }) => id));
  // These wait in this process for their turn to join the queue.
  const outside = [...live.values()].filter(
    ({ pending, id, client: { prefix } }) => pending && prefix === client.prefix && !seen.has(id),
  );
  const queues = queuesOf(listed).map((entries) => heldAndPending(entries));
  return {
    held: queues.flatMap(({ held }) => infosOf(held)),
    pending: [
      ...queues.flatMap(({ pending }) => infosOf(pending)),
      ...outside.map(({ args: { name, mode }, client: { clientId } }) => ({ name, mode, clientId })),
    ],
  };
}

function listedOf(prefix: string, kv: KeyValue, leaseIds: ReadonlySet<bigint>): Listed | undefined {
  const entry = namedEntryOf(prefix, kv);
  if (entry === undefined) return undefined;
  const { name, mode, foreign } = entry;
  const { client, id } = parseEntryValue(kv.value);
  const info = { name, mode, clientId: client ?? kv.leaseId.toString(16) };
  const isRequest = client !== undefined && leaseIds.has(kv.leaseId);
  return { info, mode, foreign, id: isRequest ? id : undefined };
}

function queuesOf(entries: readonly Listed[]): readonly (readonly Listed[])[] {
  const byName = new Map<string, Listed[]>();
  for (const entry of entries) {
    const queue = byName.get(entry.info.name);
    if (queue) queue.push(entry);
    else byName.set(entry.info.name, [entry]);
  }
  return [...byName.values()];
}

const infosOf = (entries: readonly Listed[]): WebLockInfo[] =>
  entries.filter(({ foreign }) => !foreign).map(({ info }) => info);
