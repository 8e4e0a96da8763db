import { EtcdRefusedError } from "../errors.js";
import type { CallOptions, Member } from "./rpc.js";

/**
 * The token for user and password, valid on every member. However many calls find it missing or expired, one of them
 * asks for a new one and the others wait: each Authenticate costs the server a bcrypt.
 */
export class Tokens {
  #token: string | undefined;
  #asking: Promise<void> | undefined;

  constructor(
    private readonly user: { readonly username: string; readonly password: string },
    private readonly timeoutMs: number,
  ) {}

  get current(): string | undefined {
    return this.#token || undefined;
  }

  /** `token` was refused: unless another call has replaced it meanwhile, the next call gets a new one. */
  drop(token: string | undefined): void {
    if (token === this.current) this.#token = undefined;
  }

  async ready(member: Member, { timeoutMs }: CallOptions): Promise<void> {
    if (this.#token !== undefined) return;
    // Not the caller's signal: others wait for the same answer.
    this.#asking ??= this.#ask(member, Math.max(timeoutMs, this.timeoutMs)).finally(
      () => (this.#asking = undefined),
    );
    await this.#asking;
  }

  async #ask(member: Member, timeoutMs: number): Promise<void> {
    try {
      this.#token = await member.authenticate(this.user.username, this.user.password, { timeoutMs });
    } catch (error) {
      // As Go's client does: a server without authentication needs no token.
      if (!(error instanceof EtcdRefusedError && error.message.includes("authentication is not enabled")))
        throw error;
      this.#token = "";
    }
  }
}
