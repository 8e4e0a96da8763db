// The limit for leasehold: its own transport without anything above it. This is not a lock: every call succeeds.
import type { Member, Operation, Txn, WatchAnswer } from "../../src/etcd/port.js";
import { ownTransport } from "./build.js";
import { callOf } from "./calls.js";
import { UNRENEWED_SECONDS } from "./client.js";
import type { BareKey, Connect, Lockable, Session, Where } from "./client.js";

const OPTIONS = { timeoutMs: 10_000 } as const;

export const connect: Connect = async (where) => {
  const { member, clock } = await memberOf(where);
  return {
    session: () => leased(member, clock.randomId()),
    close: () => Promise.resolve(member.retire()),
  };
};

async function memberOf({ addresses, build }: Pick<Where, "addresses" | "build">) {
  const { GrpcMember, checkConnect, systemClock: clock } = await ownTransport(build);
  const host = `http://${addresses[0]}`;
  const options = checkConnect({ hosts: host, transport: "http2" });
  const setting = { token: () => undefined, pingMs: options.pingIntervalMs };
  return { member: new GrpcMember(host, setting, { options, clock }), clock };
}

/** One key, put, deleted and watched. */
export async function bareKey(where: Pick<Where, "addresses" | "build">, key: string): Promise<BareKey> {
  const { member } = await memberOf(where);
  const send = async (operation: Operation): Promise<bigint> =>
    applied(member, { queues: [], compare: [], success: [operation], failure: [] });
  return {
    put: async () => void (await send({ kind: "put", key, value: "bare", leaseId: 0n })),
    delete: async () => Number(await send({ kind: "delete", key })),
    watch: (deleted) =>
      new Promise((resolve, reject) => {
        const answer = ({ created, events }: WatchAnswer): void => {
          if (created) resolve();
          for (const { kv } of events) deleted(Number(kv.modRevision));
        };
        const stream = member.watch({ answer, ended: reject });
        stream.create({ watchId: 1, key, startRevision: 0n, events: "DELETE" });
      }),
    close: () => member.retire(),
  };
}

/** As in bare.ts, a lease is granted and never renewed. */
async function leased(member: Member, leaseId: bigint): Promise<Session> {
  await member.grant(leaseId, UNRENEWED_SECONDS, OPTIONS);
  return {
    lockable: (name) => ({
      ...pairOfTransactions(member, `${name}/${leaseId}`, leaseId),
      call: callOf((txns) => member.txns(txns, OPTIONS), name),
    }),
    close: () => member.revoke(leaseId, OPTIONS),
  };
}

/** One transaction that puts a key if it does not exist, and one that deletes it if it is unchanged. */
function pairOfTransactions(member: Member, key: string, leaseId: bigint): Lockable {
  const put: Txn = {
    ...{ queues: [], compare: [{ kind: "created at", key, revision: 0n }] },
    ...{ success: [{ kind: "put", key, value: "bare", leaseId }], failure: [] },
  };
  const remove = (revision: bigint): Txn => ({
    ...{ queues: [], compare: [{ kind: "created at", key, revision }] },
    ...{ success: [{ kind: "delete", key }], failure: [] },
  });
  return {
    async lock() {
      const revision = await applied(member, put);
      return { release: async () => void (await applied(member, remove(revision))) };
    },
  };
}

/** Resolves with the revision of the transaction. */
async function applied(member: Member, txn: Txn): Promise<bigint> {
  const [answer] = await member.txns([txn], OPTIONS);
  if (answer?.succeeded !== true) throw new Error("the key is not in the expected state");
  return answer.header.revision;
}
