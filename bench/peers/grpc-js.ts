// @grpc/grpc-js, on which etcd3 is built, with leasehold's protobuf and nothing else: no interceptors, no time limit.
import { Client, credentials } from "@grpc/grpc-js";
import type { Txn, TxnAnswer } from "../../src/etcd/port.js";
import { ownCodec } from "./build.js";
import { caller, TXN, type Send } from "./calls.js";
import type { Connect } from "./client.js";

/** gRPC's prefix of a message, which leasehold's encoder writes and grpc-js adds by itself. */
const PREFIX_BYTES = 5;

export const connect: Connect = async ({ addresses: [address = ""], build }) => {
  const { encodeTxns, decodeTxns } = await ownCodec(build);
  const client = new Client(address, credentials.createInsecure());
  const serialize = (txns: readonly Txn[]) => encodeTxns(txns).subarray(PREFIX_BYTES);
  const deserialize = (message: Buffer) => decodeTxns(message, 1);
  const send: Send = (txns) =>
    new Promise((resolve, reject) => {
      const answered = (error: Error | null, answers?: readonly TxnAnswer[]) => {
        if (answers === undefined) reject(error ?? new Error("no answer"));
        else resolve(answers);
      };
      client.makeUnaryRequest(TXN, serialize, deserialize, txns, answered);
    });
  return caller(send, () => client.close());
};
