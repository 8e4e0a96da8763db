import { AbortFanOut } from "../../../src/util/abort.js";
import type { Clock } from "../../../src/util/clock.js";
import { Timers } from "../../../src/util/timers.js";
import { streamFailure } from "../../../src/etcd/http2/failure.js";
import { type CallOptions, gaveUp, UnansweredError } from "../../../src/etcd/port.js";
import { statusFailure } from "../../../src/etcd/refusals.js";
import type { Refusal, UnaryReply, UnaryRequest } from "../etcd/types.js";
import type { Wire } from "./wire.js";

/** What the unary calls of one `SimMember` share. */
export class UnaryServices {
  readonly deadlines: Timers | undefined;
  readonly aborts = new AbortFanOut("last");

  constructor(
    readonly host: string,
    readonly wire: Wire,
    clock: Clock | undefined,
  ) {
    this.deadlines = clock && new Timers(clock);
  }
}

export const isRefusal = (reply: object): reply is Refusal =>
  (reply as Partial<Refusal>).refused !== undefined;

/** As `src/etcd/http2` reads the status of a rejected call. */
export const refusalOf = ({ refused, code }: Refusal, host: string): Error =>
  statusFailure({ code, details: refused }, host);

/** One unary call: settles as `UnaryStream` of `src/etcd/http2` does, with the same errors and in the same order. */
export function unary<T>(services: UnaryServices, request: UnaryRequest, options: CallOptions): Promise<T> {
  if (options.signal?.aborted) return Promise.reject(gaveUp(false));
  return new Promise<unknown>((resolve, reject) => {
    new Unary(services, options, { resolve, reject }).start(request);
  }) as Promise<T>;
}

class Unary {
  #sent = false;
  #stops: (() => void)[] = [];

  constructor(
    private readonly services: UnaryServices,
    private readonly options: CallOptions,
    private readonly settle: { resolve(answer: unknown): void; reject(error: Error): void },
  ) {}

  start(request: UnaryRequest): void {
    const { deadlines, aborts, wire, host } = this.services;
    const { timeoutMs, signal } = this.options;
    let cancelCall = (): void => {};
    const giveUp = (error: Error): void => {
      cancelCall();
      this.#fail(error);
    };
    const deadline = deadlines?.add(timeoutMs, () => giveUp(this.#timeout()));
    this.#stops.push(() => deadline?.cancel());
    const onAbort = (): void => giveUp(gaveUp(this.#sent));
    if (signal !== undefined) this.#stops.push(aborts.add(signal, onAbort));
    cancelCall = wire.call(request, {
      sent: () => {
        this.#sent = true;
        this.options.onSent?.();
      },
      replied: (reply) => this.#replied(reply),
      failed: (failure, inDoubt) => this.#fail(streamFailure(failure, host, inDoubt)),
    });
  }

  #replied(reply: UnaryReply): void {
    if (isRefusal(reply)) return this.#fail(refusalOf(reply, this.services.host));
    this.#stop();
    this.settle.resolve(reply.answer);
  }

  #timeout(): Error {
    const what = this.#sent ? "no answer" : "no connection";
    const ms = Math.round(this.options.timeoutMs);
    return new UnansweredError(`${what} within ${ms} ms`, { inDoubt: this.#sent });
  }

  #fail(error: Error): void {
    this.#stop();
    this.settle.reject(error);
  }

  #stop(): void {
    for (const stop of this.#stops) stop();
  }
}
