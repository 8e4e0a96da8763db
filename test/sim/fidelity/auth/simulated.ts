import { Kernel } from "../../kernel/kernel.js";
import { DirectWire } from "../../network/direct-wire.js";
import { failures } from "../../../../src/etcd/transport.js";
import { SimMember } from "../../../../src/testing/memory/network/member.js";
import { intervalOf } from "../../../../src/testing/memory/store.js";
import { type Refusal, type SimVersion, isRefusal } from "../../../../src/testing/memory/protocol.js";
import { SimEtcd, type SimEtcdOptions } from "../../../../src/testing/memory/etcd.js";
import type { TokenOptions } from "../../../../src/testing/memory/users.js";
import type { Edit } from "./steps.js";
import type { AuthSubject, Connection } from "./subject.js";

const textOf = (reply: Refusal | object | undefined): string => (isRefusal(reply) ? reply.refused : "ok");

export interface SimulatedOptions {
  readonly version: SimVersion;
  readonly tokens: TokenOptions;
  readonly quirks?: SimEtcdOptions["quirks"];
}

export class Simulated implements AuthSubject {
  readonly etcd: SimEtcd;
  readonly #kernel = new Kernel("auth");

  constructor({ version, tokens, quirks = {} }: SimulatedOptions) {
    const auth = { tokens, enabled: false, passwordMs: 1 };
    const random = this.#kernel.random.fork("etcd");
    this.etcd = new SimEtcd({ scheduler: this.#kernel, random, version, quirks, auth });
  }

  connect(token: () => string | undefined): Connection {
    const [server] = this.etcd.members;
    const compact = (revision: bigint): Promise<string> =>
      new Promise((resolve) => {
        const request = { kind: "compact", revision, token: token() } as const;
        server!.call(request, (reply) => resolve(textOf(reply)));
      });
    return { member: new SimMember(server!.host, new DirectWire(server!), { failures, token }), compact };
  }

  edit(edit: Edit): Promise<string> {
    return Promise.resolve(textOf(this.#edit(edit)));
  }

  wait(settled: Promise<unknown>, limitMs: number): Promise<boolean> {
    let over = false;
    const end = (): void => void (over = true);
    settled.then(end, end);
    return this.#kernel.run(() => over, limitMs);
  }

  elapse(ms: number): Promise<void> {
    return this.#kernel.elapse(ms);
  }

  /** Writes up to `revision`, and uses up the quota. */
  fill(revision: bigint): void {
    this.#writeUpTo(revision);
    this.etcd.quota.fill();
    // As the write that does not fit.
    this.etcd.quota.alarm = true;
  }

  clear(revision: bigint): void {
    this.#writeUpTo(revision);
    this.etcd.store.compact(revision);
    this.etcd.quota.clear();
  }

  #writeUpTo(revision: bigint): void {
    const { store } = this.etcd;
    while (store.revision < revision) store.write(() => store.put({ key: "fill/", value: "", leaseId: 0n }));
  }

  #edit(edit: Edit): Refusal | undefined {
    const { auth, quota } = this.etcd;
    if (edit.edit === "alarm") return void (quota.alarm = edit.on);
    if ("user" in edit) return this.#editUser(edit);
    if ("role" in edit) return this.#editRole(edit);
    return edit.edit === "enable" ? auth.enable() : void auth.disable();
  }

  #editUser(edit: Extract<Edit, { user: string }>): Refusal | undefined {
    const { auth } = this.etcd;
    switch (edit.edit) {
      case "add user":
        return auth.edit((users) => users.addUser(edit.user, edit.password));
      case "change password":
        return auth.changePassword(edit.user, edit.password);
      case "delete user":
        return auth.deleteUser(edit.user);
      case "grant role":
        return auth.edit((users) => users.grantRole(edit.user, edit.role));
      case "revoke role":
        return auth.revokeRole(edit.user, edit.role);
    }
  }

  #editRole(edit: Exclude<Extract<Edit, { role: string }>, { user: string }>): Refusal | undefined {
    const { auth } = this.etcd;
    switch (edit.edit) {
      case "add role":
        return auth.edit((users) => users.addRole(edit.role));
      case "delete role":
        return auth.deleteRole(edit.role);
      case "grant permission": {
        const permission = { type: edit.type, range: intervalOf(edit.key, edit.end) };
        return auth.edit((users) => users.grantPermission(edit.role, permission));
      }
      case "revoke permission":
        return auth.edit((users) => users.revokePermission(edit.role, intervalOf(edit.key, edit.end)));
    }
  }
}
