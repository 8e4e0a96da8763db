import { LeaseholdError } from "./base-error.js";
import { printable } from "./printable.js";

/** Texts from etcd and gRPC are cut where they arrive. This limit leaves room for hints and the reasons of several hosts. */
const MAX_REASON = 2000;

/** The last failure of each member, in one line. */
export const failuresText = (members: ReadonlyMap<string, Error>): string =>
  [...members].map(([host, { message }]) => `${host}: ${printable(message, MAX_REASON)}`).join("; ");

/** The failures of members as the `cause` of an error. */
export const causeOf = (members: ReadonlyMap<string, Error>): AggregateError =>
  new AggregateError([...members.values()], "every member that was tried failed");

/** No member answered in time: the outcome is unknown until cleanup has confirmed it. */
export class EtcdUnavailableError extends LeaseholdError {
  readonly code = "ETCD_UNAVAILABLE";
  declare readonly cause: AggregateError;
  readonly #what: string;

  constructor(
    what: string,
    /** The last failure of each member that was tried, by host. */
    readonly members: ReadonlyMap<string, Error>,
  ) {
    super(`etcd did not answer (${what})${members.size > 0 ? `: ${failuresText(members)}` : ""}`, {
      cause: causeOf(members),
    });
    this.#what = what;
  }

  override get name() {
    return "EtcdUnavailableError" as const;
  }

  /** @internal The same error for another caller, with a stack of its own. */
  again(): EtcdUnavailableError {
    return new EtcdUnavailableError(this.#what, this.members);
  }
}

/** Why etcd rejected a request. `member`: every host did, each for its own reason (a web server, a learner, another cluster). */
export type RefusalReason = "unauthenticated" | "permission" | "quota" | "tls" | "member" | "other";

/**
 * etcd rejected the request and would reject it again (wrong password, no permission, quota), or every host rejected it
 * for its own reason (`tls` or `member`). The request is not retried. docs/refusals.md lists all rejections.
 */
export class EtcdRefusedError extends LeaseholdError {
  readonly code = "ETCD_REFUSED";
  readonly #details: string;
  readonly #inDoubt: boolean;

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly why: RefusalReason,
    readonly host: string,
    details: string,
    { what, inDoubt = false }: { readonly what?: string; readonly inDoubt?: boolean } = {},
  ) {
    super(
      `etcd at ${host} refused${what === undefined ? "" : ` to ${what}`} (${why}): ${printable(details, MAX_REASON)}`,
    );
    this.#details = details;
    this.#inDoubt = inDoubt;
  }

  override get name() {
    return "EtcdRefusedError" as const;
  }

  /** @internal The text of the answer, from etcd or from whatever server answered in its place. */
  get details(): string {
    return this.#details;
  }

  /** @internal The request may have been executed nevertheless: see "database space exceeded" in etcd/refusals/refusals.ts. */
  get inDoubt(): boolean {
    return this.#inDoubt;
  }

  /** @internal The same error, naming the operation that was refused. */
  during(what: string): EtcdRefusedError {
    return new EtcdRefusedError(this.why, this.host, this.#details, { what, inDoubt: this.#inDoubt });
  }
}
