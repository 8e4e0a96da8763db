// Bare requests of npm `etcd3`, for comparison: the client of leasehold's transport "etcd3", without anything around it.
// This is not a lock: every call succeeds.
import { noop } from "cockatiel";
import { Etcd3 } from "etcd3";
import { UNRENEWED_SECONDS, type BareKey, type Connect, type Lockable, type Session } from "./client.js";

const VALUE = Buffer.from("bare");

export const bareClient = (addresses: readonly string[]) =>
  new Etcd3({
    hosts: addresses.map((address) => `http://${address}`),
    faultHandling: { global: noop, host: () => noop },
  });

export const connect: Connect = ({ addresses }) => {
  const client = bareClient(addresses);
  return {
    session: () => leased(client),
    close: () => Promise.resolve(client.close()),
  };
};

/** A lease is granted, because a key with a lease costs etcd a little more, but never renewed. */
async function leased(client: Etcd3): Promise<Session> {
  const { ID: lease } = await client.leaseClient.leaseGrant({ ID: "0", TTL: UNRENEWED_SECONDS });
  return {
    lockable: (name) => ({
      ...pairOfTransactions(client, Buffer.from(`${name}/${lease}`), lease),
      call: () => putOf(client, Buffer.from(name)),
    }),
    close: async () => void (await client.leaseClient.leaseRevoke({ ID: lease })),
  };
}

/** One transaction that puts a key if it does not exist, and one that deletes it if it is unchanged. */
function pairOfTransactions({ kv }: Etcd3, key: Buffer, lease: string): Lockable {
  const created = (revision: string) =>
    ({ key, target: "Create", result: "Equal", create_revision: revision }) as const;
  return {
    async lock() {
      const put = { request_put: { key, value: VALUE, lease } };
      const { header } = await kv.txn({ compare: [created("0")], success: [put] });
      const remove = { request_delete_range: { key } };
      return {
        release: async () => void (await kv.txn({ compare: [created(header.revision)], success: [remove] })),
      };
    },
  };
}

/** The transaction of calls.ts. */
async function putOf({ kv }: Etcd3, key: Buffer): Promise<void> {
  const put = { request_put: { key, value: VALUE } };
  const { succeeded } = await kv.txn({ compare: [], success: [put] });
  if (!succeeded) throw new Error("etcd has not put the key");
}

/** One key, put, deleted and watched. */
export function bareKey(addresses: readonly string[], name: string): BareKey {
  const client = bareClient(addresses);
  const key = Buffer.from(name);
  return {
    put: async () => void (await client.kv.put({ key, value: VALUE })),
    delete: async () => Number((await client.kv.deleteRange({ key })).header.revision),
    watch: (deleted) => watchOf(client, key, deleted),
    close: () => client.close(),
  };
}

async function watchOf(
  { watchClient }: Etcd3,
  key: Buffer,
  deleted: (revision: number) => void,
): Promise<void> {
  const stream = await watchClient.watch();
  return new Promise((resolve, reject) => {
    stream.on("error", reject);
    stream.on("data", ({ created, events }) => {
      if (created) resolve();
      for (const { kv, type } of events) if (type === "Delete") deleted(Number(kv.mod_revision));
    });
    stream.write({ create_request: { key, start_revision: "0" } });
  });
}
