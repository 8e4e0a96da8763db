import { setTimeout as delay } from "node:timers/promises";

/**
 * A member that can report whether it leads.
 * @typedef {object} Asked
 * @property {boolean} running
 * @property {(options: { timeoutMs: number }) => Promise<{ leader: boolean, raftTerm: bigint }>} status
 */

/**
 * Waits until a running member reports that it leads in the highest known term.
 * @template {Asked} M
 * @param {readonly M[]} members
 * @param {{ timeoutMs?: number }} [options]
 * @returns {Promise<M>}
 */
export async function leaderAmong(members, { timeoutMs = 20_000 } = {}) {
  const until = Date.now() + timeoutMs;
  while (Date.now() < until) {
    const found = await leaderNow(members);
    if (found) return found;
    await delay(50);
  }
  throw new Error(`no etcd leader within ${timeoutMs} ms`);
}

/** @template {Asked} M @param {readonly M[]} members */
async function leaderNow(members) {
  const views = await Promise.all(
    members.map(async (member) => ({ member, status: await statusOf(member) })),
  );
  const known = views.flatMap(({ member, status }) => (status ? [{ member, status }] : []));
  const newest = known.reduce((term, { status }) => (status.raftTerm > term ? status.raftTerm : term), 0n);
  return known.find(({ status }) => status.leader && status.raftTerm === newest)?.member;
}

/** @param {Asked} member */
async function statusOf(member) {
  if (!member.running) return undefined;
  // a paused member never answers: do not wait long for it
  return member.status({ timeoutMs: 500 }).catch(() => undefined);
}
