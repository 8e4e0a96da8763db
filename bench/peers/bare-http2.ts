// The limit for leasehold: its own transport without anything above it. This is not a lock: every call succeeds.
import type { Member, Txn } from "../../src/etcd/port.js";
import { ownTransport } from "./build.js";
import { callOf } from "./calls.js";
import { UNRENEWED_SECONDS, type Connect, type Lockable, type Session } from "./client.js";

const OPTIONS = { timeoutMs: 10_000 } as const;

export const connect: Connect = async ({ addresses, build }) => {
  const { GrpcMember, checkConnect, systemClock } = await ownTransport(build);
  const host = `http://${addresses[0]}`;
  const options = checkConnect({ hosts: host, transport: "http2" });
  const setting = { token: () => undefined, pingMs: options.pingIntervalMs };
  const member = new GrpcMember(host, setting, { options, clock: systemClock });
  return {
    session: () => leased(member, systemClock.randomId()),
    close: () => Promise.resolve(member.retire()),
  };
};

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
