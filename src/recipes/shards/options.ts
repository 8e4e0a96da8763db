import {
  checkFunction,
  checkInteger,
  checkName,
  checkSession,
  type CheckedSession,
  MAX_TIMER_MS,
} from "../../base/options/check.js";
import { checkLock, type CheckedLock } from "../../base/options/lock.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { LockOptions, SessionOptions } from "../../lock/session/session-options.js";
import { checkCapacity, checkMemberText, checkMemberValue, type MemberOptions } from "../members/member.js";
import { MAX_COUNT, shardName } from "./view.js";

const DRAIN_MS = 10_000;
const SETTLE_MS = 1000;

/** The options of `shards`. */
export interface ShardsOptions extends SessionOptions, MemberOptions, Pick<LockOptions, "label"> {
  /** The number of shards, 1..4096: the same for all members. */
  readonly count: number;
  /** What others read about this member, such as its address, at most 4096 bytes. @default the owner of its session */
  readonly value?: string | undefined;
  /**
   * Milliseconds, 0..2147483647, in which `work` should settle after its signal. Work that takes longer is reported to `onStuck`, and
   * keeps its shard. @default 10000
   */
  readonly drainMs?: number | undefined;
  /**
   * Milliseconds, 0..2147483647, after which a new member takes shards: members that start together take their shares at once, and one that
   * crashes again and again moves nothing. @default 1000
   */
  readonly settleMs?: number | undefined;
  /** The number of shards that the group had before. This member owns nothing as long as a member with that number is there. */
  readonly migrate?: number | undefined;
  /** The stop signal: the same as `close()`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called when the work on a shard has not settled `forMs` milliseconds after its signal. Without it, a line of the log says so, or else a
   * warning of the process with the code `SHARDS`.
   */
  readonly onStuck?: ((shard: number, forMs: number) => void) | undefined;
  /**
   * Called when something has failed, and is tried again after `delayMs` milliseconds: the work on `shard`, or getting it; or, without
   * `shard`, the session or a request of the member. Without it, a warning of the process with the code `SHARDS` says so.
   */
  readonly onRetry?: ((error: unknown, delayMs: number, shard?: number) => void) | undefined;
  /**
   * Called when the work on a shard has failed three times in a row: for a minute, this member leaves it to others, if one can take it.
   * Without it, a line of the log says so, or else a warning of the process with the code `SHARDS`.
   */
  readonly onFailed?: ((shard: number, error: unknown) => void) | undefined;
}

const OPTIONS = [
  ...["count", "id", "capacity", "zone", "value", "drainMs", "settleMs", "migrate", "signal", "label"],
  ...["onStuck", "onRetry", "onFailed"],
];

export interface CheckedShards {
  readonly name: string;
  readonly count: number;
  readonly drainMs: number;
  readonly settleMs: number;
  readonly session: CheckedSession;
  readonly id: string | undefined;
  readonly capacity: number;
  readonly zone: string | undefined;
  readonly value: string | undefined;
  readonly migrate: number | undefined;
  /** The options of the locks of the shards. */
  readonly lock: CheckedLock;
  readonly listeners: Pick<ShardsOptions, "onStuck" | "onRetry" | "onFailed">;
}

const checkCount = (option: string, value: unknown): number =>
  checkInteger(option, value ?? null, { min: 1, max: MAX_COUNT, fallback: 1 });

export function checkShards(services: EtcdServices, name: string, options: ShardsOptions): CheckedShards {
  const given = (options as ShardsOptions | undefined) ?? ({} as Partial<ShardsOptions>);
  const session = checkSession("shards", options, { also: OPTIONS, defaults: services.options.session });
  const count = checkCount("count", given.count);
  const { value, label, migrate, onStuck, onRetry, onFailed } = given;
  checkName(name);
  checkName(shardName(name, count));
  for (const [option, listener] of Object.entries({ onStuck, onRetry, onFailed }))
    if (listener !== undefined) checkFunction(option, listener);
  const limits = { min: 0, max: MAX_TIMER_MS };
  return {
    ...{ name, session, count, lock: checkLock("shards", { label }) },
    id: checkMemberText("id", given.id),
    zone: checkMemberText("zone", given.zone),
    capacity: checkCapacity(given.capacity),
    value: value === undefined ? undefined : checkMemberValue(value),
    drainMs: checkInteger("drainMs", given.drainMs, { ...limits, fallback: DRAIN_MS }),
    settleMs: checkInteger("settleMs", given.settleMs, { ...limits, fallback: SETTLE_MS }),
    migrate: migrate === undefined ? undefined : checkCount("migrate", migrate),
    listeners: { onStuck, onRetry, onFailed },
  };
}
