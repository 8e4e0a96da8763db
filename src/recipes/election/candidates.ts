// The candidates of an election, and what they say of themselves. The queue has their order, and their values are their own, so a
// candidate with one of the options below has a second key, beside the queue, on the same lease. It's put by the transaction of its
// join: its modification revision is the create revision of the entry, and of no other one.
import { EtcdUnavailableError } from "../../errors.js";
import type { KeyValue, Range } from "../../etcd/port.js";
import type { RangesAnswer } from "../../etcd/ranges.js";
import type { CallPolicy } from "../../etcd/retry.js";
import {
  type CheckedWait,
  checkBoolean,
  checkFunction,
  checkInteger,
  isWellFormed,
  type Options,
  rangeError,
  typeError,
} from "../../base/options/check.js";
import { aboutKey, aboutRange, delayedBy, prefixOf } from "../../keys.js";
import { isLockValue } from "../../kinds.js";
import { type RangeResult, queueRange } from "../../lock/queue/lock-mode.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import { atCaller } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";

/** A candidate of an election, leading or waiting, as every client reads it. */
export interface ElectionCandidate {
  readonly key: string;
  /** What it campaigned with or last proclaimed; cut at 65536 characters. */
  readonly value: string;
  /** Create revision of `key`: its place in the order, and its `fence` once it leads. */
  readonly revision: bigint;
  readonly leaseId: bigint;
  /** It is the leader. */
  readonly leads: boolean;
  /**
   * Its campaign has one of the options `transferable`, `priority`, `labels` and `eligible`: it can be named by `transfer`, and be moved
   * behind others. Candidates of other clients (Go, etcdctl) can't.
   */
  readonly transferable: boolean;
  /** The owner of its session; undefined unless it's transferable, as what follows is. */
  readonly owner: string | undefined;
  /** 0 unless it's transferable. */
  readonly priority: number;
  /** Empty unless it's transferable. */
  readonly labels: Readonly<Record<string, string>>;
  /** bigints as decimal strings. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** What a candidate says of itself, so that others may hand over to it. */
export interface CandidateOptions {
  /**
   * The candidate can be named by `leadership.transfer`, and it moves to the end of the queue when one behind it is named. It's true if
   * one of the options below is given. It has a key more in etcd, on the same lease: `/leasehold/candidates/KEY/about`, where KEY is that of
   * its entry. It counts only while nobody has changed it; docs/operations.md says which right that needs. The candidate sends one request
   * more when its turn comes. @default false
   */
  readonly transferable?: boolean | undefined;
  /**
   * A whole number, -1000..1000. When the turn of this candidate comes, and a transferable one of a higher priority waits, it hands over to
   * that one and joins the queue again, unless its turn has come by a `transfer` to it. A running leader stays: nobody is interrupted. A low
   * priority leads only when no higher one waits: starvation is possible. Behind a candidate that is not transferable, such as one of Go's, a
   * candidate waits, whatever its priority. An adopted leader hands over to no higher priority. Costs a hand-over more. @default 0
   */
  readonly priority?: number | undefined;
  /**
   * What others may choose by, such as `{ zone: "eu-1a", version: "2026-03-01" }`: at most 16 labels, with names of 1..64 bytes and
   * values of at most 256 bytes. They compare as text: "2.10" comes before "2.9". @default none
   */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /**
   * Called when the turn of this candidate has come, but by no `transfer` to it, with each transferable candidate that it can hand over to, itself first, and with all
   * of them: may this one lead? The first eligible one of the highest priority leads. If it's another one, this candidate hands over to it
   * and joins the queue again. If none is eligible, this one leads. What it throws rejects the campaign. Candidates may have different
   * rules: each hands over to another session at most once per campaign.
   *
   * With `(one, all) => all.every((other) => one.labels.version <= other.labels.version)`, no new version leads while an old one is a
   * candidate, if all have the label: without one, none is eligible. @default all are
   */
  readonly eligible?:
    ((candidate: ElectionCandidate, all: readonly ElectionCandidate[]) => boolean) | undefined;
}

export const CANDIDATE_OPTIONS = ["transferable", "priority", "labels", "eligible"] as const;

/** The checked options of a candidate that can be transferred to. */
export interface CheckedCandidate {
  /** As it's stored. */
  readonly about: { readonly priority: number; readonly labels: Readonly<Record<string, string>> };
  readonly eligible: NonNullable<CandidateOptions["eligible"]>;
}

const MAX_PRIORITY = 1000;
const PRIORITIES = { min: -MAX_PRIORITY, max: MAX_PRIORITY };
const MAX_LABELS = 16;
const MAX_LABEL_NAME = 64;
const MAX_LABEL = 256;

/** undefined: a plain candidate. @throws {TypeError | RangeError} */
export function checkCandidateOptions(given: unknown): CheckedCandidate | undefined {
  const options = (given ?? {}) as Options & CandidateOptions;
  const priority = checkInteger("priority", options.priority, { ...PRIORITIES, fallback: 0 });
  const labels = checkLabels(options.labels);
  const { eligible = () => true } = options;
  checkFunction("eligible", eligible);
  const transferable = checkBoolean("transferable", options.transferable);
  const says = CANDIDATE_OPTIONS.some((option) => option !== "transferable" && options[option] !== undefined);
  if (says && options.transferable === false)
    throw new TypeError("Options priority, labels and eligible need a candidate that is transferable");
  return transferable || says ? { about: { priority, labels }, eligible } : undefined;
}

function checkLabels(given: unknown): Readonly<Record<string, string>> {
  if (given === undefined) return {};
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw typeError("labels", "an object of strings", given);
  const labels = Object.entries(given as Options);
  if (labels.length > MAX_LABELS) throw rangeError("labels", `at most ${MAX_LABELS} labels`, labels.length);
  for (const [name, value] of labels) {
    const rule = `a well-formed string of at most ${MAX_LABEL} bytes`;
    if (!isText(name, MAX_LABEL_NAME) || name === "")
      throw rangeError("the name of a label", `1 to ${MAX_LABEL_NAME} bytes`, name);
    if (typeof value !== "string") throw typeError(`labels.${name}`, rule, value);
    if (!isText(value, MAX_LABEL)) throw rangeError(`labels.${name}`, rule, value);
  }
  return Object.fromEntries(labels) as Record<string, string>;
}

const isText = (value: unknown, maxBytes: number): value is string =>
  typeof value === "string" && Buffer.byteLength(value) <= maxBytes && isWellFormed(value);

/** A queue with thousands of candidates is not read to its end. */
const MAX_READ = 1000;
/** Of foreign values. */
const MAX_VALUE = 65_536;
/** JSON makes six bytes of some characters: what this library writes is shorter. */
const MAX_STORED = 65_536;

/** A key in the queue of an election, with all that has to be known to move it. */
export interface QueuedKey {
  readonly candidate: ElectionCandidate;
  /** As it's stored. */
  readonly value: string;
  readonly modRevision: bigint;
  /** It stands in the queue, and is no candidate: a lock, or an entry of a name below the election's. */
  readonly isForeign: boolean;
  /** The second key of an entry whose session has `releaseDelayMs`. */
  readonly delayKey: string | undefined;
}

/** What a read of the candidates asks for, in this order. */
export const candidateRanges = (path: string): readonly [Range, Range] => [
  { ...queueRange(path), order: "oldest first", limit: MAX_READ },
  { ...aboutRange(path), order: "newest first", limit: MAX_READ },
];

/** Whether it is a candidate's key, and not that of a lock or of an election with a name below this one. */
export const isCandidate = (path: string, key: string, value: string): boolean =>
  !key.includes("/", prefixOf(path).length) && !isLockValue(value);

/** The queue, oldest first, of an answer to `candidateRanges`. A delay key beside its entry is a part of that one. */
export function queuedKeys(
  path: string,
  [queue, said]: readonly (RangeResult | RangesAnswer["ranges"][number] | undefined)[],
): readonly QueuedKey[] {
  const abouts = new Map((said?.kvs ?? []).map((kv) => [kv.key.toString(), kv]));
  const kvs = (queue?.kvs ?? []).map((kv) => ({ ...kv, text: kv.key.toString() }));
  const entries = new Map(kvs.map(({ text, createRevision }) => [text, createRevision]));
  const delays = new Map<string, string>();
  for (const { text, createRevision } of kvs) {
    const delayed = delayedBy(text);
    if (delayed !== undefined && entries.get(delayed) === createRevision) delays.set(delayed, text);
  }
  const beside = new Set(delays.values());
  return kvs
    .filter(({ text }) => !beside.has(text))
    .map((kv, n) => {
      const isForeign = !isCandidate(path, kv.text, kv.value);
      const about = isForeign ? undefined : parseAbout(abouts.get(aboutKey(kv.text)), kv);
      const leads = n === 0 && !isForeign;
      const { value, modRevision } = kv;
      const candidate = candidateOf(kv, about, leads);
      return { candidate, value, modRevision, isForeign, delayKey: delays.get(kv.text) };
    });
}

type About = Pick<ElectionCandidate, "owner" | "priority" | "labels">;
const NOTHING: About = { owner: undefined, priority: 0, labels: {} };

function candidateOf(kv: KeyValue & { readonly text: string }, about: About | undefined, leads: boolean) {
  const data = {
    key: kv.text,
    value: kv.value.slice(0, MAX_VALUE),
    revision: kv.createRevision,
    leaseId: kv.leaseId,
    leads,
    transferable: about !== undefined,
    ...(about ?? NOTHING),
  };
  const toJSON = (): ReturnType<ElectionCandidate["toJSON"]> => ({
    ...data,
    revision: data.revision.toString(),
    leaseId: data.leaseId.toString(),
  });
  // Not enumerable, so that logs and comparisons see only the data.
  return Object.defineProperty(data, "toJSON", { value: toJSON }) as ElectionCandidate;
}

/** undefined unless the transaction that put the entry has put it, too. Anybody may have written it: all that is kept is bounded. */
function parseAbout(kv: KeyValue | undefined, entry: KeyValue): About | undefined {
  if (!kv || kv.leaseId !== entry.leaseId || kv.modRevision !== entry.createRevision) return undefined;
  if (kv.value.length > MAX_STORED || !kv.value.startsWith("{")) return undefined;
  let parsed: Record<string, unknown>;
  try {
    parsed = JSON.parse(kv.value) as Record<string, unknown>;
  } catch {
    return undefined;
  }
  const { owner, priority, labels } = parsed;
  if (!isText(owner, 256) || typeof priority !== "number" || !Number.isInteger(priority)) return undefined;
  if (Math.abs(priority) > MAX_PRIORITY) return undefined;
  if (typeof labels !== "object" || labels === null) return undefined;
  const found = Object.entries(labels);
  const areText = found.every(([name, value]) => isText(name, MAX_LABEL_NAME) && isText(value, MAX_LABEL));
  if (found.length > MAX_LABELS || !areText) return undefined;
  return { owner, priority, labels: Object.fromEntries(found) };
}

/** Which candidate a leader hands over to: the owner of its session, or exactly this candidate. */
export type TransferTarget = string | Pick<ElectionCandidate, "key" | "revision">;

/** @throws {TypeError | RangeError} */
export function checkTarget(to: unknown): TransferTarget {
  const rule = "the owner of a candidate's session, or a candidate";
  if (typeof to === "string") {
    if (!isText(to, 256)) throw rangeError("to", "an owner of at most 256 bytes", to);
    return to;
  }
  if (typeof to !== "object" || to === null) throw typeError("to", rule, to);
  const { key, revision } = to as Partial<ElectionCandidate>;
  if (typeof key !== "string" || typeof revision !== "bigint") throw typeError("to", rule, to);
  return { key, revision };
}

/** Default `timeoutMs` of `leader()`, and of other reads. */
export const READ_TIMEOUT_MS = 5000;

/** The queue of an election, oldest first. */
export async function readQueue(
  services: EtcdServices,
  path: string,
  { what, policy, wait }: { readonly what: string; readonly policy: CallPolicy; readonly wait: CheckedWait },
): Promise<readonly QueuedKey[]> {
  const { client } = services;
  const { signal, timeoutMs = READ_TIMEOUT_MS } = wait;
  const limits = { giveUpMs: timeoutMs, limitIsGiven: wait.timeoutMs !== undefined };
  const reading = client.ranges(candidateRanges(path), { ...policy, ...limits });
  const settled = settleWithin(reading, { signal, timeoutMs }, services, {
    onTimeout: () => new EtcdUnavailableError(what, client.hosts.whyUnanswered(timeoutMs)),
  });
  const { ranges } = await atCaller(settled);
  return queuedKeys(path, ranges);
}
