import type { Clock } from "../util/clock.js";
import { inOwnContext } from "../util/own-context.js";
import {
  AuthDisabledError,
  type CallOptions,
  gaveUp,
  type Member,
  MemberRefusedError,
  notEtcds,
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
    private readonly user: { readonly username: string; readonly password: string },
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
    await this.#within(this.#request.answer, options);
  }

  #begin(member: Member): TokenRequest {
    const answer = this.#authenticate(member).finally(() => {
      if (this.#request === request) this.#request = undefined;
    });
    const request = { member, answer };
    return request;
  }

  /** The caller's limits end its wait, not the request: other calls wait for the same answer. */
  #within(answer: Promise<void>, { timeoutMs, signal }: CallOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (settle: () => void): void => {
        timer.cancel();
        signal?.removeEventListener("abort", onAbort);
        settle();
      };
      const onAbort = (): void => end(() => reject(gaveUp(false)));
      const onTimeout = (): void =>
        end(() => reject(new UnansweredError(`no token within ${Math.round(timeoutMs)} ms`, UNSENT)));
      const timer = this.clock.after(timeoutMs, onTimeout);
      signal?.addEventListener("abort", onAbort, { once: true });
      answer.then(
        () => end(resolve),
        (error: unknown) => end(() => reject(unsent(error))),
      );
    });
  }

  async #authenticate(member: Member): Promise<void> {
    const { timeoutMs } = this;
    try {
      const token = await member.authenticate(this.user.username, this.user.password, { timeoutMs });
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
