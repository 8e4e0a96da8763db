import { encode } from "../../support/gateway-text.js";
import type { Member } from "./ground.js";
import { untilAnswered } from "./patience.js";

interface Hash {
  readonly header: { readonly revision: string };
  readonly hash: number;
}

/**
 * Rejects if the members do not have the same data when nothing is written any more: such an etcd keeps no promise, and
 * no client can be judged by it.
 */
export async function assertAgreement(
  members: readonly Member[],
  options?: { timeoutMs: number },
): Promise<void> {
  const running = members.filter((member) => member.running);
  const said = await Promise.all(running.map((member) => untilAnswered(() => hashOf(member), options)));
  if (new Set(said.map(({ data }) => data)).size <= 1) return;
  const each = said.map(({ name, data }) => `${name}: ${data}`).join(", ");
  throw new Error(`etcd's members have different data, and nothing is judged by them (${each})`);
}

async function hashOf(member: Member): Promise<{ name: string; data: string }> {
  // A quorum's read waits until the member has applied all there is.
  await member.gateway("/v3/kv/range", { key: encode("agreement") }, { timeoutMs: 10_000 });
  const { header, hash } = (await member.gateway("/v3/maintenance/hash", {}, { timeoutMs: 10_000 })) as Hash;
  return { name: member.name, data: `${hash} at revision ${header.revision}` };
}
