import type { KeyValue, Range } from "../../etcd/port.js";
import { prefixOf } from "../../keys.js";
import { checkInteger, checkName, checkWait } from "../../base/options/check.js";
import { withJson } from "../../base/telemetry/publish.js";
import { type Asking, atOneRevision } from "../../lock/queue/contenders.js";
import { type Cluster, servicesOf } from "../../lock/session/cluster.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { ask } from "../../observe/inspect.js";
import { type Mark, MAX_KEY, type OnceRun, parseMark, runOf } from "./marks.js";
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
 * `timeoutMs` defaults to 5000. On abort: rejects at once with the signal's reason.
 * @throws {EtcdUnavailableError} if etcd does not answer in time. @throws {EtcdRefusedError} when etcd rejects the reads. @throws {TypeError | RangeError} on bad arguments.
 */
export async function history(
  cluster: Cluster,
  name: string,
  options?: WaitOptions & {
    /** So many slots at most, 1..10000. @default 100 */
    readonly limit?: number | undefined;
  },
): Promise<readonly OnceRecord[]> {
  const { prefix } = servicesOf(cluster).options;
  checkName(name);
  const wait = checkWait("once.history", options, ["limit"]);
  const limit = checkInteger("limit", options?.limit, { min: 1, max: MAX_LIMIT, fallback: DEFAULT_LIMIT });
  const space = MarkSpace.of({ options: { prefix } }, name);
  const newest = { ...space.all(), order: "newest first", limit, keysOnly: true } as const;
  return ask(cluster, { what: `read the runs of "${name}"`, wait }, (asking) =>
    atOneRevision(async () => {
      const { kvs, header } = await asking.services.client.range(newest, asking.policy);
      const { revision } = header;
      const marks = (await readKeys(asking, { kvs, revision })).map((kv) => ({
        kv,
        mark: parseMark(kv) ?? {},
      }));
      // Only those that may be entries of this name: a mark may say anything.
      const start = prefixOf(`${prefix}${name}`);
      const runs = marks.flatMap(({ mark: { state, key } }) =>
        state === "started" && key?.startsWith(start) && key.length <= MAX_KEY ? [{ key }] : [],
      );
      const entries = await readKeys(asking, { kvs: runs, revision, keysOnly: true });
      return marks.flatMap(({ kv, mark }) =>
        recordOf(space.slotOf(kv.key.toString()), { kv, mark }, entries),
      );
    }),
  );
}

/** All of them at one revision. */
async function readKeys(
  { services: { client }, policy }: Asking,
  { kvs, ...range }: { readonly kvs: readonly Pick<Range, "key">[] } & Pick<Range, "keysOnly" | "revision">,
): Promise<KeyValue[]> {
  const found: KeyValue[] = [];
  for (let n = 0; n < kvs.length; n += PAGE) {
    const page = kvs.slice(n, n + PAGE).map(({ key }) => ({ key, ...range }));
    const { ranges } = await client.ranges(page, policy);
    found.push(...ranges.flatMap((each) => each.kvs));
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
