import type { Member, Txn } from "../../../src/etcd/port.js";
import type { whileHeld } from "../../../src/index.js";
import type { Context } from "../../lab/runner/context.js";

const CALL_MS = 1000;

export interface SimRegisterOptions {
  /** Returns a new connection to etcd. */
  readonly connect: () => Member;
  readonly prefix: string;
  readonly guard: typeof whileHeld;
}

/**
 * The counter of each lock, written only under the lock's guard and never retried, over a connection of its own. After a failed
 * call, the next one uses a new connection.
 */
export class SimRegister implements Pick<Context["register"], "read" | "write"> {
  readonly #options: SimRegisterOptions;
  #member: Member;

  constructor(options: SimRegisterOptions) {
    this.#options = options;
    this.#member = options.connect();
  }

  async read(lock: string): Promise<{ seq: number; rev: bigint }> {
    const key = this.#options.prefix + lock;
    const { header, kvs } = await this.#call((member) => member.range({ key }, { timeoutMs: CALL_MS }));
    const [kv] = kvs;
    const { seq } = kv === undefined ? { seq: 0 } : (JSON.parse(kv.value) as { seq: number });
    return { seq, rev: header.revision };
  }

  async write(
    ...[{ key, name, token, guard: hold = { key, revision: token } }, value]: Parameters<
      Context["register"]["write"]
    >
  ): Promise<{ accepted: boolean; rev: bigint }> {
    const { prefix, guard } = this.#options;
    const text = JSON.stringify({ token: String(token), ...value });
    const [guarded, , comparator] = guard(hold);
    const txn: Txn = {
      queues: [name],
      // Only a broken guard compares differently: it rejects no write. By the token, also after the hold has ended in its process: etcd must
      // reject the write.
      compare: (comparator as string) === "==" ? [{ kind: "created at", key: guarded, revision: token }] : [],
      success: [{ kind: "put", key: prefix + name, value: text, leaseId: 0n }],
      failure: [],
    };
    const [answer] = await this.#call((member) => member.txns([txn], { timeoutMs: CALL_MS }));
    return { accepted: answer!.succeeded, rev: answer!.header.revision };
  }

  close(): void {
    this.#member.retire();
  }

  async #call<T>(send: (member: Member) => Promise<T>): Promise<T> {
    const member = this.#member;
    try {
      return await send(member);
    } catch (error) {
      // Another call may have left it before.
      if (member === this.#member) {
        this.#member = this.#options.connect();
        member.retire();
      }
      throw error;
    }
  }
}
