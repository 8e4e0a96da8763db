// The limit: the same client and the same connection as leasehold's, without anything around its requests. This is not
// a lock: every call succeeds.
import { noop } from "cockatiel";
import { Etcd3 } from "etcd3";
import type { Connect, Lockable, Session } from "./client.js";

export const bareClient = (addresses: readonly string[]) =>
  new Etcd3({
    hosts: addresses.map((address) => `http://${address}`),
    faultHandling: { global: noop, host: () => noop },
  });

export const connect: Connect = ({ addresses, ttlSeconds }) => {
  const client = bareClient(addresses);
  return {
    session: () => leased(client, ttlSeconds),
    close: () => Promise.resolve(client.close()),
  };
};

/** A lease is granted, because a key with a lease costs etcd a little more, but never renewed: rounds are shorter. */
async function leased(client: Etcd3, ttlSeconds: number): Promise<Session> {
  const { ID: lease } = await client.leaseClient.leaseGrant({ ID: "0", TTL: ttlSeconds });
  return {
    lockable: (name) => pairOfTransactions(client, Buffer.from(`${name}/${lease}`), lease),
    close: async () => void (await client.leaseClient.leaseRevoke({ ID: lease })),
  };
}

/** One transaction that puts a key if it does not exist, and one that deletes it if it is unchanged. */
function pairOfTransactions({ kv }: Etcd3, key: Buffer, lease: string): Lockable {
  const created = (revision: string) =>
    ({ key, target: "Create", result: "Equal", create_revision: revision }) as const;
  const value = Buffer.from("bare");
  return {
    async lock() {
      const put = { request_put: { key, value, lease } };
      const { header } = await kv.txn({ compare: [created("0")], success: [put] });
      const remove = { request_delete_range: { key } };
      return {
        release: async () => void (await kv.txn({ compare: [created(header.revision)], success: [remove] })),
      };
    },
  };
}
