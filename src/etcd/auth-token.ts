import type { CheckedUser } from "../base/options/connect.js";
import type { Clock } from "../base/util/clock.js";
import { inOwnContext } from "../base/util/own-context.js";
import {
  AuthDisabledError,
  type CallOptions,
  type Member,
  MemberRefusedError,
  notEtcds,
  shared,
  TokenExpiredError,
  UnansweredError,
} from "./port.js";

/** https://www.rfc-editor.org/rfc/rfc9110#section-5.5, without tabs */
const HEADER_TEXT = /^[\x20-\x7e]*$/;

interface TokenRequest {
  readonly member: Member;
  readonly answer: Promise<void>;
}

/**
 * The token for user and password, valid on every member. When many calls find it missing or expired, one of them requests
 * a new one and the others wait: each Authenticate costs the server a bcrypt.
 */
export class AuthToken {
  /** Empty while authentication is off, until etcd rejects a call because it has no token. */
  #token: string | undefined;
  #request: TokenRequest | undefined;

  constructor(
    private readonly user: () => CheckedUser,
    private readonly timeoutMs: number,
    private readonly clock: Clock,
  ) {}

  get current(): string | undefined {
    return this.#token || undefined;
  }

  /** No token was requested yet, or etcd rejected the last one. */
  get missing(): boolean {
    return this.#token === undefined;
  }

  /** etcd rejected `token`: unless another call has replaced it meanwhile, the next call gets a new one. */
  drop(token: string | undefined): void {
    if (token === this.current) this.#token = undefined;
  }

  async ready(member: Member, options: CallOptions): Promise<void> {
    if (this.#token !== undefined) return;
    // A request that stays unanswered at another member says nothing about this one.
    if (this.#request?.member !== member) this.#request = inOwnContext(() => this.#begin(member));
    const late = (): Error =>
      new UnansweredError(`no token within ${Math.round(options.timeoutMs)} ms`, UNSENT);
    await shared(this.#request.answer, options, { clock: this.clock, late });
  }

  #begin(member: Member): TokenRequest {
    const answer = this.#authenticate(member)
      .catch((error: unknown) => {
        throw unsent(error);
      })
      .finally(() => {
        if (this.#request === request) this.#request = undefined;
      });
    const request = { member, answer };
    return request;
  }

  async #authenticate(member: Member): Promise<void> {
    const { timeoutMs } = this;
    try {
      const { username, password } = this.user();
      const token = await member.authenticate(username, password, { timeoutMs });
      // A transport that cannot send it would quote it in an error.
      if (!HEADER_TEXT.test(token)) throw new UnansweredError("the token is no header text");
      this.#token = token;
    } catch (error) {
      if (!(error instanceof AuthDisabledError)) throw ofNoToken(error, member.host);
      this.#token = "";
    }
  }
}

/** Who asks for a token has none that could have expired. */
const ofNoToken = (error: unknown, host: string): unknown =>
  error instanceof TokenExpiredError
    ? new MemberRefusedError("unauthenticated", error.message, { host })
    : notEtcds(error, [], host);

/** While the token is requested, the call itself is not yet sent. */
const UNSENT = { inDoubt: false };

const unsent = (error: unknown): unknown =>
  error instanceof UnansweredError ? new UnansweredError(error.message, { cause: error, ...UNSENT }) : error;
