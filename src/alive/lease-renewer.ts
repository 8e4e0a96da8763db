import type { EtcdRefusedError } from "../errors.js";
import type { EtcdClient } from "../etcd/client.js";
import { type DelayListener, Keepalive, type KeptLease, type LeaseListener } from "../etcd/keepalive.js";
import { MemberRefusedError } from "../etcd/port.js";
import type { Clock, Moment, Timer } from "../base/util/clock.js";
import { Timers } from "../base/util/timers.js";
import {
  type FailureNews,
  type RenewalNews,
  type RenewalOrder,
  shared,
  type SharedPulse,
  SharedRenewal,
} from "./shared-renewal.js";

/** While the other thread stands still, its beat is looked for so often, at least. */
const LOOK_MS = 50;

type Keep = Extract<RenewalOrder, { do: "keep" }>;

/** What the leases of a thread share. */
interface Setting {
  readonly client: EtcdClient;
  readonly clock: Clock;
  readonly keepalive: Keepalive;
  readonly timers: Timers;
  readonly pulse: SharedPulse;
  readonly post: (news: RenewalNews) => void;
}

/** A lease that is renewed once, for a listener of the other thread. */
class AskedRenewal implements LeaseListener {
  constructor(
    readonly leaseId: bigint,
    readonly patienceMs: number,
    protected readonly setting: Setting,
  ) {}

  renewed(given: Moment, ttlSeconds: number): void {
    const { client, clock, post } = this.setting;
    const answer = { sent: shared(given), answeredAt: clock.monotonic(), ttlSeconds };
    post({ is: "renewed", leaseId: this.leaseId, ...answer, host: client.hosts.hostInUse });
  }

  leaseNotFound(): void {
    this.setting.post({ is: "gone", leaseId: this.leaseId });
  }

  refused({ reason, host, details }: EtcdRefusedError): void {
    this.setting.post({ is: "refused", leaseId: this.leaseId, reason, host, details });
  }

  reconnected(): void {
    this.setting.post({ is: "reconnected", leaseId: this.leaseId });
  }
}

/** A lease that outlives another one, with which it is renewed. */
class DelayRenewal extends AskedRenewal implements DelayListener {
  readonly isEarly = true;
  isGone = false;

  override leaseNotFound(): void {
    this.isGone = true;
    super.leaseNotFound();
  }
}

/** A lease that is renewed while the other thread beats. */
class RenewedLease extends AskedRenewal implements KeptLease {
  readonly ttlMs: number;
  readonly delay: DelayRenewal | undefined;
  readonly #maxStallMs: number;
  readonly #renewal: SharedRenewal;
  #next: Timer | undefined;
  #check: Timer | undefined;
  #paused = false;

  constructor({ leaseId, patienceMs, ttlMs, memory, maxStallMs, sent, delay }: Keep, setting: Setting) {
    super(leaseId, patienceMs, setting);
    this.ttlMs = ttlMs;
    this.delay = delay && new DelayRenewal(delay.leaseId, delay.patienceMs, setting);
    this.#maxStallMs = maxStallMs;
    this.#renewal = new SharedRenewal(memory);
    setting.keepalive.keep(this, sent);
    setting.post({ is: "kept", leaseId });
    this.#checkBeat();
  }

  renewAt(at: number, renew: (now: Moment) => void): void {
    this.#next = this.setting.timers.at(at, () => renew(this.setting.timers.moment()));
  }

  override renewed(sent: Moment, ttlSeconds: number): void {
    // The accepted renewal that was sent last counts.
    if (sent.monotonic >= this.#renewal.last.sent.monotonic)
      this.#renewal.write(sent, Math.min(ttlSeconds * 1000, this.ttlMs));
    super.renewed(sent, ttlSeconds);
  }

  override leaseNotFound(): void {
    this.#renewal.end();
    super.leaseNotFound();
  }

  detach(): void {
    this.#next?.cancel();
    this.#check?.cancel();
    this.#detach();
  }

  #detach(): void {
    if (this.delay) this.setting.keepalive.detach(this.delay);
    this.setting.keepalive.detach(this);
  }

  /** A thread that stands still for longer cannot give up what it holds: its leases end. */
  #checkBeat(): void {
    const { clock, pulse, timers, keepalive } = this.setting;
    const leftMs = pulse.beatAt + this.#maxStallMs - clock.monotonic();
    const stalled = leftMs <= 0;
    this.#check = timers.add(stalled ? Math.min(LOOK_MS, this.#maxStallMs) : leftMs + 1, () =>
      this.#checkBeat(),
    );
    if (stalled === this.#paused) return;
    this.#paused = stalled;
    if (stalled) {
      this.#next?.cancel();
      return this.#detach();
    }
    const now = clock.now();
    keepalive.renew(this, now);
    keepalive.keep(this, now);
  }
}

/** In the worker thread: renews leases as the main thread orders it. */
export class LeaseRenewer {
  readonly #setting: Setting;
  readonly #leases = new Map<bigint, RenewedLease>();

  constructor(setting: Omit<Setting, "keepalive" | "timers">) {
    const { client, clock, pulse } = setting;
    this.#setting = { ...setting, keepalive: new Keepalive(client, clock), timers: new Timers(clock, true) };
    client.floor.share(pulse.floor, () => {});
    client.pool.listen({ failed: () => this.failed(), suspected: () => this.failed() });
  }

  /** Reports which hosts have failed, and why. */
  failed(): void {
    const { client, post } = this.#setting;
    post({ is: "failing", failures: failuresOf(client) });
  }

  take(order: Exclude<RenewalOrder, { do: "reach" | "end" }>): void {
    const { client, keepalive } = this.#setting;
    switch (order.do) {
      case "keep":
        this.#leases.get(order.leaseId)?.detach();
        this.#leases.set(order.leaseId, new RenewedLease(order, this.#setting));
        break;
      case "renew":
        keepalive.renew(
          this.#leases.get(order.leaseId) ?? new AskedRenewal(order.leaseId, order.patienceMs, this.#setting),
        );
        break;
      case "detach":
        this.#leases.get(order.leaseId)?.detach();
        this.#leases.delete(order.leaseId);
        keepalive.detach(order);
        break;
      case "probe":
        client.floor.sent(order.probe.key);
        break;
    }
  }
}

const failuresOf = ({ hosts }: EtcdClient): FailureNews[] =>
  [...hosts.silentHosts].map(([host, { error }]) =>
    error instanceof MemberRefusedError ? [host, error.message, error.reason] : [host, error.message],
  );
