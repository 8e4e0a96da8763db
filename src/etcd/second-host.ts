import type { Clock, Timer } from "../base/util/clock.js";
import type { EtcdClient } from "./client.js";
import { type Header, type Member, MemberRefusedError } from "./port.js";

/** After the first answer of a member: the first lock has its round trips for itself, and a short program ends before. */
const SOON_MS = 1000;

/**
 * Asks one more host, once, which cluster it belongs to. With hosts of two clusters in one list, processes that begin at different
 * ones have a lock at the same time, and without a fail-over none of them would notice. It is reported as a host that refused.
 */
export class SecondHost {
  readonly #over = new AbortController();
  #timer: Timer | undefined;
  #known = false;

  constructor(
    private readonly client: EtcdClient,
    private readonly clock: Clock,
  ) {
    client.pool.listen({ up: () => this.#askSoon() });
  }

  close(): void {
    this.#timer?.cancel();
    this.#over.abort();
  }

  #askSoon(): void {
    if (this.#known || this.#over.signal.aborted) return;
    this.#timer?.cancel();
    this.#timer = this.clock.after(SOON_MS, () => {
      // A host that does not answer says nothing; another one is asked after the next fail-over.
      this.#ask().catch(() => undefined);
    });
    this.#timer.unref?.();
  }

  async #ask(): Promise<void> {
    const { hosts, pool, requestTimeoutMs: timeoutMs } = this.client;
    const host = hosts.second;
    if (host === undefined || this.#over.signal.aborted) return;
    const member = pool.connectTo(host);
    try {
      await member.loading;
      const { header } = await identify(member, { timeoutMs, signal: this.#over.signal });
      this.#known = true;
      hosts.assertOurs(host, header);
    } catch (error) {
      if (this.#known && error instanceof MemberRefusedError) hosts.foundForeign(host, error);
    } finally {
      member.retire();
    }
  }
}

/** By a request that a member answers alone, and without a right to any key. */
const identify = (
  member: Member,
  options: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<{ readonly header: Header }> => member.members?.(options) ?? member.timeToLive(1n, options);
