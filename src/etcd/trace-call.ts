import { callChannel } from "../diagnostics/channels.js";
import { withJson } from "../diagnostics/message-json.js";
import type { CallMessage } from "../diagnostics/messages.js";
import { tracePromise } from "../diagnostics/tracing.js";
import { EtcdRefusedError } from "../errors.js";
import { retry, type AttemptLimits, type CallPolicy, type RetryContext } from "./retry.js";

type Attempt<T> = (limits: AttemptLimits) => Promise<T>;

/** Like `retry()`, for subscribers of the channel `leasehold.call`. */
export function retryTraced<T>(attempt: Attempt<T>, policy: CallPolicy, context: RetryContext): Promise<T> {
  const { clock, hosts } = context;
  const start = clock.monotonic();
  const { what } = policy;
  const begun: CallMessage = { hosts, what, host: undefined, attempts: 0, durationMs: undefined };
  const message = withJson(begun);
  const counted: Attempt<T> = (limits) => {
    message.attempts++;
    limits.answered = (host) => (message.host = host);
    return attempt(limits);
  };
  return tracePromise(callChannel, message, async () => {
    try {
      return await retry(counted, policy, context);
    } catch (error) {
      if (error instanceof EtcdRefusedError) message.host = error.host;
      throw error;
    } finally {
      message.durationMs = clock.monotonic() - start;
    }
  });
}
