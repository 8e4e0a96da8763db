/** What etcd says when it has more to apply than it keeps up with. Nothing of the request was done. */
export const OVERLOADED = { code: 8, details: "etcdserver: too many requests" };

/** The requests of a lock that etcd may answer so: those that it proposes to its peers. */
export const PROPOSALS = [
  "/etcdserverpb.KV/Txn",
  "/etcdserverpb.Lease/LeaseGrant",
  "/etcdserverpb.Lease/LeaseRevoke",
];
