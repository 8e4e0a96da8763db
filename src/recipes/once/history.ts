import type { EtcdClient } from "../../etcd/client.js";
import type { KeyValue } from "../../etcd/port.js";
import type { CallPolicy } from "../../etcd/retry.js";
import { atOneRevision } from "../../lock/queue/contenders.js";
import { checkInteger, checkName, checkOptions, checkSignal } from "../../base/options/check.js";
import { withJson } from "../../base/telemetry/publish.js";
import { type Cluster, servicesOf } from "../../lock/session/cluster.js";
import { type Mark, type OnceRun, parseMark, runOf } from "./marks.js";
import { MarkSpace } from "./slots.js";

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 10_000;
/** A mark may have 96 KiB, and many proxies pass on 4 MiB at a time. */
const PAGE = 32;

/** What etcd keeps of one slot of `once`. */
export interface OnceRecord extends OnceRun {
  readonly slot: number | string;
  /** "lost": its run ended without an end of its work. "missed": `catchUp` was told not to run it. */
  readonly state: "running" | "done" | "failed" | "lost" | "missed";
  /** The fence of its lock; undefined for one that was missed, and if its mark doesn't say. */
  readonly fence: bigint | undefined;
}

/**
 * The runs of a name, the youngest first: which slots have run, when, by whom, and how they ended. Marks that were deleted
 * or have expired are not among them. Sends one request, one more for each 32 slots, and one for each 32 that seem to run.
 *
 * On abort: rejects at once with the signal's reason.
 * @throws {EtcdRefusedError} when etcd rejects the reads. @throws {TypeError | RangeError} on bad arguments.
 */
export async function history(
  cluster: Cluster,
  name: string,
  options?: {
    /** So many slots at most, 1..10000. @default 100 */
    readonly limit?: number | undefined;
    readonly signal?: AbortSignal | undefined;
  },
): Promise<readonly OnceRecord[]> {
  const services = servicesOf(cluster);
  const { client } = services;
  checkName(name);
  const given = checkOptions("history", options, ["limit", "signal"]);
  const limit = checkInteger("limit", given["limit"], { min: 1, max: MAX_LIMIT, fallback: DEFAULT_LIMIT });
  const signal = checkSignal(given["signal"]);
  signal?.throwIfAborted();
  const space = MarkSpace.of(services, name);
  const policy: CallPolicy = { what: `read the runs of "${name}"`, signal };
  return atOneRevision(async () => {
    const newest = { ...space.all(), order: "newest first", limit, keysOnly: true } as const;
    const { kvs, header } = await client.range(newest, policy);
    const read = (keys: readonly string[]): Promise<KeyValue[]> =>
      readKeys(client, keys, { ...header, policy });
    const marks = (await read(kvs.map(({ key }) => key.toString()))).map((kv) => ({
      kv,
      mark: parseMark(kv) ?? {},
    }));
    const entries = await read(
      marks.flatMap(({ mark: { state, key } }) => (state === "started" && key ? [key] : [])),
    );
    return marks.flatMap(({ kv, mark }) => recordOf(space.slotOf(kv.key.toString()), { kv, mark }, entries));
  });
}

/** All of them at one revision. */
async function readKeys(
  client: EtcdClient,
  keys: readonly string[],
  { revision, policy }: { readonly revision: bigint; readonly policy: CallPolicy },
): Promise<KeyValue[]> {
  const found: KeyValue[] = [];
  for (let n = 0; n < keys.length; n += PAGE) {
    const page = keys.slice(n, n + PAGE).map((key) => ({ key, revision }));
    const { ranges } = await client.ranges(page, policy);
    found.push(...ranges.flatMap(({ kvs }) => kvs));
  }
  return found;
}

function recordOf(
  slot: number | string | undefined,
  { kv, mark }: { readonly kv: KeyValue; readonly mark: Partial<Mark> },
  entries: readonly KeyValue[],
): readonly OnceRecord[] {
  if (slot === undefined) return [];
  const fence = fenceOf(kv, mark);
  const runs = entries.some(
    ({ key, createRevision }) => key.toString() === mark.key && createRevision === fence,
  );
  const { state = "done" } = mark;
  const now = state === "started" ? (runs ? "running" : "lost") : state;
  return [withJson({ slot, state: now, fence: state === "missed" ? undefined : fence, ...runOf(mark) })];
}

function fenceOf({ modRevision }: KeyValue, { state, fence }: Partial<Mark>): bigint | undefined {
  if (fence === undefined) return state === "started" ? modRevision : undefined;
  return /^\d{1,19}$/.test(fence) ? BigInt(fence) : undefined;
}
