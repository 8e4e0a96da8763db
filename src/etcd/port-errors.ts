import { EtcdRefusedError } from "../errors.js";

/** The errors with which an attempt on one member ends. `retry` decides which of them another attempt may fix. */

/**
 * No usable answer, or a transient rejection: another member may answer. If `inDoubt`, the request may have been executed,
 * or may yet be; otherwise it certainly was not (it never left this process, or etcd says so).
 */
export class UnansweredError extends Error {
  override readonly name: string = "UnansweredError";
  readonly inDoubt: boolean;

  constructor(message: string, options: { readonly cause?: unknown; readonly inDoubt?: boolean } = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.inDoubt = options.inDoubt ?? true;
  }
}

/**
 * The host rejects connections, or its name has no address: an answer of its operating system or of the name service, not
 * silence. The request was not sent.
 */
export class UnreachableError extends UnansweredError {
  override readonly name = "UnreachableError";

  constructor(message: string, cause?: unknown) {
    super(message, { cause, inDoubt: false });
  }
}

/**
 * The host has asked for a certificate of the client, and closed the connection. Where no host has ever answered, the
 * certificate is the reason; later, a balancer may have lost its members. The request was not sent.
 */
export class TurnedAwayError extends UnansweredError {
  override readonly name = "TurnedAwayError";

  constructor(readonly refusal: EtcdRefusedError) {
    super(refusal.details, { inDoubt: false });
  }
}

/** The caller stopped waiting for the answer: this says nothing about the member. */
export class CancelledError extends UnansweredError {
  override readonly name = "CancelledError";
}

/** The member, or a proxy in front of it, demands fewer pings and drops calls that etcd may have executed. */
export class TooManyPingsError extends UnansweredError {
  override readonly name = "TooManyPingsError";
}

/** Carries the host of a failed attempt to `retry`, which classifies all failures. */
export class AttemptError extends Error {
  constructor(
    readonly host: string,
    readonly why: Error,
  ) {
    super(why.message);
  }
}

/** The caller gave up before the request was sent: nothing was executed. */
export class NotSentError extends Error {
  override readonly name = "NotSentError";
}

/** Only this member, or a server in its place, rejects the request: another member may accept it. */
export class MemberRefusedError extends Error {
  override readonly name = "MemberRefusedError";

  constructor(
    readonly refusal: EtcdRefusedError,
    /** The rejection is not etcd's own: the request may have been executed behind a proxy. */
    readonly inDoubt: boolean,
  ) {
    super(refusal.details);
  }
}

/**
 * This member has applied far less than is committed (etcd compares its own two indexes) and did not start the request: repeat
 * it on another member. If there is no other, repeat it later on the same connection, as a new one would add to the load.
 */
export class OverloadedError extends Error {
  override readonly name = "OverloadedError";
}

/** etcd has no such lease: an answer, not a failure. */
export class LeaseNotFoundError extends Error {
  override readonly name = "LeaseNotFoundError";
}

/** The lease ID is taken: an earlier grant of this client was executed. */
export class LeaseExistsError extends Error {
  override readonly name = "LeaseExistsError";
}

/** etcd does not accept the token, or requires one: get a new one and repeat the request. Nothing was executed. */
export class TokenExpiredError extends Error {
  override readonly name = "TokenExpiredError";
}

/** Authentication is off: calls need no token. */
export class AuthDisabledError extends Error {
  override readonly name = "AuthDisabledError";
}

/** A verdict that is the answer to some requests. Of any other request it is not etcd's. */
export type AnswerKind = "lease" | "lease exists" | "quota";

/** etcd gives no such verdict to a request that has only these answers: another server has, in its place. */
export function notEtcds(error: unknown, answers: readonly AnswerKind[], host: string): unknown {
  const kind = answerKindOf(error);
  if (kind === undefined || answers.some((each) => each === kind)) return error;
  const { message } = error as Error;
  const details = error instanceof EtcdRefusedError ? error.details : message;
  return new MemberRefusedError(
    new EtcdRefusedError("member", host, `an answer to another request: ${details}`),
    true,
  );
}

function answerKindOf(error: unknown): AnswerKind | "never" | undefined {
  if (error instanceof LeaseNotFoundError) return "lease";
  if (error instanceof LeaseExistsError) return "lease exists";
  if (error instanceof AuthDisabledError) return "never";
  return error instanceof EtcdRefusedError && error.why === "quota" ? "quota" : undefined;
}

/** Whether etcd rejected the request of this attempt. */
export const refused = (error: unknown): error is AttemptError =>
  error instanceof AttemptError &&
  (error.why instanceof EtcdRefusedError ||
    error.why instanceof LeaseNotFoundError ||
    error.why instanceof LeaseExistsError);

/** Whether the request of this attempt may have been executed. */
export const inDoubt = ({ why }: AttemptError): boolean =>
  (why instanceof UnansweredError || why instanceof MemberRefusedError || why instanceof EtcdRefusedError) &&
  why.inDoubt;
