import { createHash } from "node:crypto";
import { encode } from "../../support/clients/gateway-text.js";
import type { Member } from "./ground.js";
import { untilAnswered } from "./patience.js";

interface Answer {
  readonly header: { readonly revision: string };
  readonly hash: number;
  readonly kvs?: readonly object[];
}

/**
 * Rejects if the members do not have the same data after all writes have ended: such an etcd keeps no promise, so it
 * cannot be used to judge a client. With `users`, only the keys are compared: on etcd 3.4 each member hashes a password
 * by itself, with its own salt.
 */
export async function assertAgreement(
  members: readonly Member[],
  { users = false, ...patience }: { readonly users?: boolean; readonly timeoutMs?: number } = {},
): Promise<void> {
  const look = users ? keysOf : hashOf;
  const running = members.filter((member) => member.running);
  const said = await Promise.all(
    running.map(async (it) => ({ name: it.name, data: await untilAnswered(() => look(it), patience) })),
  );
  if (new Set(said.map(({ data }) => data)).size <= 1) return;
  const each = said.map(({ name, data }) => `${name}: ${data}`).join(", ");
  throw new Error(`etcd's members have different data, and nothing is judged by them (${each})`);
}

async function ask(member: Member, path: string, body: object): Promise<Answer> {
  // A quorum read waits until the member has applied everything.
  await member.gateway("/v3/kv/range", { key: encode("agreement") }, { timeoutMs: 10_000 });
  return (await member.gateway(path, body, { timeoutMs: 10_000 })) as Answer;
}

async function hashOf(member: Member): Promise<string> {
  const { header, hash } = await ask(member, "/v3/maintenance/hash", {});
  return `${hash} at revision ${header.revision}`;
}

async function keysOf(member: Member): Promise<string> {
  const all = { key: encode("\0"), range_end: encode("\0"), serializable: true };
  const { header, kvs } = await ask(member, "/v3/kv/range", all);
  const hash = createHash("sha256").update(JSON.stringify(kvs)).digest("hex").slice(0, 12);
  return `${hash} at revision ${header.revision}`;
}
