import type { Member, Txn } from "../../../src/etcd/port.js";
import type { whileHeld } from "../../../src/index.js";
import type { Context } from "../../lab/runner/context.js";

const CALL_MS = 1000;

/** The counter of each lock, written only under the lock's guard and never retried, over a connection of its own. */
export class SimRegister implements Pick<Context["register"], "read" | "write"> {
  constructor(
    private readonly member: Member,
    private readonly prefix: string,
    private readonly guard: typeof whileHeld,
  ) {}

  async read(lock: string): Promise<{ seq: number; rev: bigint }> {
    const { header, kvs } = await this.member.range({ key: this.prefix + lock }, { timeoutMs: CALL_MS });
    const [kv] = kvs;
    const { seq } = kv === undefined ? { seq: 0 } : (JSON.parse(kv.value) as { seq: number });
    return { seq, rev: header.revision };
  }

  async write(
    ...[{ key, name, token }, value]: Parameters<Context["register"]["write"]>
  ): Promise<{ accepted: boolean; rev: bigint }> {
    const text = JSON.stringify({ token: String(token), ...value });
    const [guarded, , comparator, revision] = this.guard({ key, revision: token });
    const txn: Txn = {
      queues: [name],
      // Only a broken guard compares differently: everybody passes it.
      compare:
        (comparator as string) === "=="
          ? [{ kind: "created at", key: guarded, revision: BigInt(revision) }]
          : [],
      success: [{ kind: "put", key: this.prefix + name, value: text, leaseId: 0n }],
      failure: [],
    };
    const [answer] = await this.member.txns([txn], { timeoutMs: CALL_MS });
    return { accepted: answer!.succeeded, rev: answer!.header.revision };
  }
}
