import type { Scheduler } from "../../kernel/kernel.js";

/** Who makes a request, and the revision of the auth store that the token vouches for. 0: no user. */
export interface AuthInfo {
  readonly username: string;
  readonly revision: number;
}

export const NO_USER: AuthInfo = { username: "", revision: 0 };

/** How often etcd checks for expired simple tokens (simpleTokenTTLResolution in auth/simple_token.go). */
const TICK_MS = 1000;

export interface TokenOptions {
  /** Use extends the life of a simple token. Each change of users and roles makes a JWT stale. */
  readonly kind: "simple" | "jwt";
  readonly ttlMs: number;
}

/** The tokens that a member accepts. */
export interface Tokens {
  add(token: string, info: AuthInfo): void;
  /** `undefined`: the token is invalid. */
  info(token: string, revision: number): AuthInfo | undefined;
  forgetUser(username: string): void;
  /** Authentication was disabled. */
  clear(): void;
  /** Authentication was enabled. */
  enabled(): void;
}

interface SimpleToken {
  readonly username: string;
  end: number;
}

/**
 * Simple tokens (auth/simple_token.go): each member has its own table, and only the member that is used extends the life of a
 * token. A loop deletes expired tokens: they live up to a second longer.
 */
export class SimpleTokens implements Tokens {
  readonly #tokens = new Map<string, SimpleToken>();
  #loopStart: number;

  constructor(
    private readonly ttlMs: number,
    private readonly scheduler: Scheduler,
  ) {
    this.#loopStart = scheduler.now;
  }

  add(token: string, { username }: AuthInfo): void {
    this.#tokens.set(token, { username, end: this.scheduler.now + this.ttlMs });
  }

  info(token: string, revision: number): AuthInfo | undefined {
    const found = this.#tokens.get(token);
    if (!found) return undefined;
    const { now } = this.scheduler;
    if (now >= this.#deletion(found)) {
      this.#tokens.delete(token);
      return undefined;
    }
    found.end = now + this.ttlMs;
    return { username: found.username, revision };
  }

  forgetUser(username: string): void {
    for (const [token, found] of this.#tokens) if (found.username === username) this.#tokens.delete(token);
  }

  clear(): void {
    this.#tokens.clear();
  }

  enabled(): void {
    this.#loopStart = this.scheduler.now;
  }

  /** The first run of the loop after the end. */
  #deletion({ end }: SimpleToken): number {
    return this.#loopStart + (Math.floor((end - this.#loopStart) / TICK_MS) + 1) * TICK_MS;
  }
}

/** JSON web tokens (auth/jwt.go): they contain all that a member needs to know. */
export class JwtTokens implements Tokens {
  readonly #tokens = new Map<string, AuthInfo & { readonly end: number }>();

  constructor(
    private readonly ttlMs: number,
    private readonly scheduler: Scheduler,
  ) {}

  add(token: string, info: AuthInfo): void {
    this.#tokens.set(token, { ...info, end: this.scheduler.now + this.ttlMs });
  }

  info(token: string): AuthInfo | undefined {
    const found = this.#tokens.get(token);
    return found && this.scheduler.now < found.end ? found : undefined;
  }

  forgetUser(): void {}
  clear(): void {}
  enabled(): void {}
}
