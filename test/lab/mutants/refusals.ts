// The rules by which a rejection is judged, broken on purpose.
import { t1, t2, type Mutant } from "./mutant.js";

export const REFUSALS: readonly Mutant[] = [
  {
    name: "member-taken-for-cluster",
    wrong: "rejects a call when one host has rejected it for a reason of its own",
    patches: [
      {
        file: "etcd/retry.js",
        from: "if (!mayPass(error))\n            throw error;",
        to: `if (error instanceof MemberRefusedError)
            throw new EtcdRefusedError(error.why, error.host, error.message);
        if (!mayPass(error))
            throw error;`,
      },
    ],
    // A worker that starts while the fault lasts may connect to this member first.
    hunt: t2(["web-server", "unimplemented", "kill-holder"], { lastsMs: [4000, 6000] }),
  },
  {
    name: "refusal-dropped",
    wrong: "reports a renewal that etcd has refused to nobody",
    patches: [
      {
        file: "etcd/keepalive.js",
        from: 'listener?.refused?.(refusal.during("renew a lease"));',
        to: "",
      },
    ],
    hunt: t1(["role-revoked"], { auth: "on" }),
  },
  {
    name: "token-not-renewed",
    wrong: "goes on with the token that etcd has rejected",
    patches: [{ file: "etcd/member-pool.js", from: "this.tokens?.drop(token);", to: "void token;" }],
    hunt: t1(["tokens-dropped"], { auth: "on" }),
  },
  {
    name: "lost-answer-taken-for-rejection",
    wrong:
      "takes HTTP/2's ENHANCE_YOUR_CALM, which comes after etcd has executed the request, for a rejection",
    patches: [
      {
        file: "etcd/http2/failure.js",
        from: 'return new UnansweredError(readable(message), { kind: "calm", inDoubt });',
        to: 'return rejection({ code: 8, details: "etcdserver: request is too large" }, host);',
      },
      {
        file: "etcd/http2/failure.js",
        from: "import { certificateFailure,",
        to: "import { certificateFailure, rejection,",
      },
    ],
    hunt: t1(["calm-joins"], { ttlSeconds: 9 }),
  },
  {
    name: "rejection-never-executed",
    wrong: "takes a quota rejection for a request that was not executed",
    patches: [
      {
        file: "etcd/refusals.js",
        from: 'new EtcdRefusedError("quota", host, readable(details), { inDoubt: true })',
        to: 'new EtcdRefusedError("quota", host, readable(details))',
      },
    ],
    // Many names: the next call of the same worker under the same name would find the key, and take it for its own.
    hunt: t1(["crossed-quota"], { names: 24, ttlSeconds: 9, seconds: 30, runs: 5 }),
  },
  {
    name: "doubt-never-ended",
    wrong: "watches the queue of each key in doubt for the rest of the session",
    patches: [
      {
        file: "lock/session/key-audit.js",
        from: "    doubt(key) {\n",
        to: `    doubt(key) {
        const folder = key.slice(0, key.lastIndexOf("/"));
        const nothing = () => {};
        const watch = () => {
            const listener = { created: nothing, events: nothing, interrupted: watch, refused: nothing };
            const target = { key: folder + "/", end: folder + "0", events: "ALL" };
            if (!this.lease.signal.aborted)
                this.lease.services.watches.watch(target, listener);
        };
        watch();
`,
      },
    ],
    hunt: t1(["lose-join-answers"], { ttlSeconds: 9 }),
  },
];
