// One transaction after the other, as the question "transport" measures them: each puts the same key, without a lease.
import type { Txn, TxnAnswer } from "../../src/etcd/port.js";
import type { Client } from "./client.js";

/** The method and its path. */
export const TXN = "/etcdserverpb.KV/Txn";

export type Send = (txns: readonly Txn[]) => Promise<readonly TxnAnswer[]>;

/** Sends one such transaction with each call. */
export function callOf(send: Send, name: string): () => Promise<void> {
  const put = { kind: "put", key: name, value: "bare", leaseId: 0n } as const;
  const txns: readonly Txn[] = [{ queues: [], compare: [], success: [put], failure: [] }];
  return async () => {
    const [answer] = await send(txns);
    if (answer?.succeeded !== true) throw new Error("etcd has not put the key");
  };
}

/** A client that can only call. */
export function caller(send: Send, close: () => void): Client {
  const lock = () => Promise.reject(new Error("this client has no lock, not even a bare one"));
  return {
    session: () =>
      Promise.resolve({
        lockable: (name) => ({ lock, call: callOf(send, name) }),
        close: () => Promise.resolve(),
      }),
    close: () => Promise.resolve(close()),
  };
}
