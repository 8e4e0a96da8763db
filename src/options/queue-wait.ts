import { checkBoolean, checkWait, WAIT_OPTIONS, type CheckedWait, type Options } from "./check.js";

/** The checked limits of a call that waits in a queue. */
export interface CheckedQueueWait extends CheckedWait {
  readonly rejoin: boolean;
}

export const QUEUE_WAIT_OPTIONS = [...WAIT_OPTIONS, "rejoin"] as const;

const NO_LIMITS: CheckedQueueWait = { signal: undefined, timeoutMs: undefined, rejoin: false };

export interface QueueWaitCall {
  /** The call, in words of its user. */
  readonly where: string;
  /** Its other options. */
  readonly also?: readonly string[];
  readonly source: { readonly reopens: boolean };
}

/** Checks `signal`, `timeoutMs` and `rejoin`, which every call that waits in a queue takes. */
export function checkQueueWait(
  options: unknown,
  { where, also = [], source }: QueueWaitCall,
): CheckedQueueWait {
  const { signal, timeoutMs } = checkWait(where, options, ["rejoin", ...also]);
  const rejoin = checkBoolean("rejoin", (options as Options | undefined)?.rejoin);
  if (rejoin && !source.reopens)
    throw new TypeError(
      `Expected rejoin to be false or left out in ${where} with a Session: it has no next session; use a Cluster, got true`,
    );
  if (signal === undefined && timeoutMs === undefined && !rejoin) return NO_LIMITS;
  return { signal, timeoutMs, rejoin };
}
