import { describe, expect, it } from "vitest";
import { AuthStore, Permissions, SimpleTokens } from "../../../src/testing/memory/users.js";
import { oneTxn } from "../../../src/testing/memory/kv.js";
import { intervalOf } from "../../../src/testing/memory/store.js";
import {
  type Refusal,
  type UnaryReply,
  type UnaryRequest,
  isRefusal,
} from "../../../src/testing/memory/protocol.js";
import { SimEtcd, type SimEtcdOptions } from "../../../src/testing/memory/etcd.js";
import { Random } from "../../../src/testing/memory/random.js";
import { ManualScheduler, put, txn } from "./etcd-setup.js";

const AUTH = {
  users: { worker: { password: "secret", roles: ["jobs"] } },
  roles: { jobs: { readwrite: ["jobs/"] } },
} as const;

function setUp(options: Partial<SimEtcdOptions> = {}) {
  const scheduler = new ManualScheduler();
  const etcd = new SimEtcd({ scheduler, random: new Random("1"), version: "3.6", auth: AUTH, ...options });
  const replyTo = (request: UnaryRequest): UnaryReply | undefined => {
    let reply: UnaryReply | undefined;
    etcd.members[0]!.call(request, (answer) => (reply = answer));
    return reply;
  };
  /** "ok", or the text of the rejection. */
  const ask = (request: UnaryRequest): string => {
    const reply = replyTo(request);
    if (reply === undefined) return "no answer";
    return isRefusal(reply) ? reply.refused : "ok";
  };
  const read = (token?: string): string => ask({ kind: "range", range: { key: "jobs/1" }, token });
  return { scheduler, etcd, ask, read };
}

const WRITE = { kind: "kv", request: oneTxn([txn({ success: [put("jobs/1")] })]) } as const;
const NO_SPACE = "etcdserver: mvcc: database space exceeded";
const INVALID = "etcdserver: invalid auth token";

describe("a simple token", () => {
  it("lives on with each use, and ends up to a second after its time", () => {
    const scheduler = new ManualScheduler();
    const tokens = new SimpleTokens(5000, scheduler);
    tokens.add("t", { username: "worker", revision: 1 });
    scheduler.advance(4500);
    expect(tokens.info("t", 3)).toEqual({ username: "worker", revision: 3 });
    // The loop that deletes tokens runs each second: at 9.5 s the token has expired, at 10 s it is gone.
    scheduler.advance(5400);
    expect(tokens.info("t", 3)).toBeDefined();
    scheduler.advance(6000);
    expect(tokens.info("t", 3)).toBeUndefined();
  });

  it("is extended by the member that is used, and by no other", () => {
    const scheduler = new ManualScheduler();
    const auth = new AuthStore({
      scheduler,
      random: new Random("1"),
      auth: { tokens: { kind: "simple", ttlMs: 2000 } },
    });
    const [first, second] = [auth.newTokens(), auth.newTokens()];
    const token = auth.issue("root");
    for (let n = 0; n < 3; n++) {
      scheduler.advance(1500);
      expect(first.info(token, 1)).toBeDefined();
    }
    expect(second.info(token, 1)).toBeUndefined();
  });

  it("ends with its user's password, when authentication is disabled, and when the member forgets it", () => {
    const { etcd, read } = setUp();
    const endings = [
      () => void etcd.auth.changePassword("worker", "other"),
      () => void etcd.auth.forgetTokens(),
      () => {
        etcd.auth.disable();
        etcd.auth.enable();
      },
    ];
    for (const end of endings) {
      const [worker, root] = [etcd.auth.issue("worker"), etcd.auth.issue("root")];
      expect([read(worker), read(root)]).toEqual(["ok", "ok"]);
      end();
      expect(read(worker)).toBe(INVALID);
    }
  });
});

describe("permissions", () => {
  const range = (key: string, end?: string) => intervalOf(key, end);

  it("cover a range together if they adjoin", () => {
    const adjoining = new Permissions([
      { type: "readwrite", range: range("b/", "c") },
      { type: "read", range: range("a/", "b/") },
    ]);
    expect(adjoining.allows("read", range("a/1", "b/2"))).toBe(true);
    expect(adjoining.allows("write", range("a/1", "b/2"))).toBe(false);
    expect(adjoining.allows("read", range("a/1", "\0"))).toBe(false);
  });
});

describe("authentication", () => {
  it("compares a password for a while, and once more if users were edited meanwhile", () => {
    const { scheduler, etcd } = setUp();
    const replies: UnaryReply[] = [];
    const request = { kind: "authenticate", username: "worker", password: "secret" } as const;
    etcd.members[0]!.call(request, (reply) => replies.push(reply));
    expect(replies).toEqual([]);
    scheduler.advance(etcd.auth.passwordMs / 2);
    etcd.auth.changePassword("worker", "other");
    scheduler.advance(2 * etcd.auth.passwordMs);
    expect((replies[0] as Refusal).refused).toContain("invalid user ID or password");
  });

  it("names a request in flight as old when users are edited before it is applied", () => {
    const { etcd } = setUp();
    const token = etcd.auth.issue("worker");
    const admitted = etcd.access.admit({ ...WRITE, token });
    etcd.auth.edit((users) => users.addRole("other"));
    const answer = etcd.access.apply(WRITE, admitted as never, () => ({}));
    expect(answer).toMatchObject({ refused: "etcdserver: revision of auth store is old" });
  });

  it("changes nothing for an etcd without users", () => {
    const { ask, read } = setUp({ auth: undefined });
    expect([read("forged"), ask(WRITE)]).toEqual(["ok", "ok"]);
  });
});

describe("a renewal", () => {
  const renewals = (version: "3.5" | "3.6") => {
    const { etcd } = setUp({ version });
    const answers: string[] = [];
    etcd.leases.grant(7n, 60);
    const out = (answer: object): void => void answers.push(isRefusal(answer) ? answer.refused : "ok");
    const stream = etcd.members[0]!.keepalive(out, { token: etcd.auth.issue("worker") });
    stream.send(7n);
    etcd.auth.forgetTokens();
    stream.send(7n);
    stream.send(7n);
    return answers;
  };

  it("needs no token with etcd 3.5", () => {
    expect(renewals("3.5")).toEqual(["ok", "ok", "ok"]);
  });

  it("ends the stream with etcd 3.6 when its token is invalid", () => {
    expect(renewals("3.6")).toEqual(["ok", INVALID]);
  });
});

describe("the quota", () => {
  it("rejects the write that crosses it, though it is executed, and all writes after it", () => {
    const { etcd, ask } = setUp({ auth: undefined });
    etcd.quota.cross();
    expect([ask(WRITE), etcd.store.revision]).toEqual([NO_SPACE, 2n]);
    expect([ask(WRITE), etcd.store.revision]).toEqual([NO_SPACE, 2n]);
    expect(etcd.quota.alarm).toBe(true);
  });
});
