import type { Operation, Txn } from "../../../../src/etcd/port.js";
import type { UnaryRequest } from "../types.js";
import type { AuthQuirks } from "./quirks.js";

/**
 * The quota of the backend. Its size is not simulated: a test sets when it is exceeded. etcd checks it twice: the member that
 * gets a request (api/v3rpc/quota.go), and the application of the request (etcdserver/apply). Either raises the alarm, which stays
 * until it is disarmed.
 */
export class Quota {
  readonly #quirks: Pick<AuthQuirks, "nestedPutsAreFree">;
  /** The alarm NOSPACE is on. */
  alarm = false;
  #full = false;
  #crossing = false;

  constructor(quirks: Pick<AuthQuirks, "nestedPutsAreFree">) {
    this.#quirks = quirks;
  }

  /** Neither check has an effect. */
  get idle(): boolean {
    return !this.alarm && !this.#full && !this.#crossing;
  }

  /** The backend has reached its quota: the next write raises the alarm. */
  fill(): void {
    this.#full = true;
    this.#crossing = false;
  }

  /** The next write crosses the quota while it is applied: it is executed, and still rejected. */
  cross(): void {
    this.#crossing = true;
  }

  /** As an administrator who has made space, and disarms the alarm. */
  clear(): void {
    this.alarm = this.#full = this.#crossing = false;
  }

  /** Whether the member that gets the request rejects it. */
  rejects(request: UnaryRequest): boolean {
    if (!this.#full || !this.#isCostly(request)) return false;
    this.alarm = true;
    return true;
  }

  /** Whether the alarm rejects the request when it is applied (applierV3Capped). */
  isCapped(request: UnaryRequest): boolean {
    return this.alarm && this.#isCostly(request);
  }

  /** Whether a request that was executed is rejected all the same (quotaApplierV3). */
  crosses(request: UnaryRequest): boolean {
    if (!this.#crossing || !this.#isCostly(request)) return false;
    this.fill();
    this.alarm = true;
    return true;
  }

  /** Puts, also those of the branch that is not taken, and grants (storage/quota.go). */
  #isCostly(request: UnaryRequest): boolean {
    if (request.kind !== "txns") return request.kind === "grant";
    return (request.txns.length === 1 || !this.#quirks.nestedPutsAreFree) && request.txns.some(puts);
  }
}

const isPut = ({ kind }: Operation): boolean => kind === "put";
const puts = ({ success, failure }: Txn): boolean => success.some(isPut) || failure.some(isPut);
