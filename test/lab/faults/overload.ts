/** etcd's answer when it has more to apply than it can keep up with. Nothing of the request was executed. */
export const OVERLOADED = { code: 8, details: "etcdserver: too many requests" };

/** A lock's requests that etcd may answer in this way: those that it proposes to its peers. */
export const PROPOSALS = [
  "/etcdserverpb.KV/Txn",
  "/etcdserverpb.Lease/LeaseGrant",
  "/etcdserverpb.Lease/LeaseRevoke",
];
