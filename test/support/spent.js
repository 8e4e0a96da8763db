/** @import { EtcdMember } from "./etcd.js" */

/**
 * What etcd itself has counted: unary calls by method, messages received on streams, revisions. Only what is not 0.
 * @typedef {Record<string, number>} Spent
 */

const UNARY = [
  "Txn",
  "Range",
  "Put",
  "DeleteRange",
  "Compact",
  "LeaseGrant",
  "LeaseRevoke",
  "LeaseTimeToLive",
];
const STREAMS = ["Watch", "LeaseKeepAlive"];

/**
 * @param {EtcdMember} member @param {{ timeoutMs?: number }} [options] of each question
 * @returns {Promise<Spent>} since it was started
 */
async function totals(member, options) {
  const metrics = await member.metrics(options);
  const { revision } = await member.status(options);
  /** @type {Spent} */
  const sums = { revisions: Number(revision) };
  for (const [series, value] of metrics) {
    const [, kind] = /^grpc_server_(handled|msg_received)_total\{/.exec(series) ?? [];
    const method = /grpc_method="(\w+)"/.exec(series)?.[1] ?? "";
    const counts = kind === "handled" ? UNARY : kind === "msg_received" ? STREAMS : [];
    if (counts.includes(method)) sums[method] = (sums[method] ?? 0) + value;
  }
  return sums;
}

/** Starts to count. @param {EtcdMember} member @param {{ timeoutMs?: number }} [options] of each question */
export async function meter(member, options) {
  let before = await totals(member, options);
  /** @param {Spent} after */
  const since = (after) => {
    const spent = Object.entries(after).map(([what, sum]) => [what, sum - (before[what] ?? 0)]);
    return /** @type {Spent} */ (Object.fromEntries(spent.filter(([, sum]) => sum !== 0)));
  };
  /** What was spent since the start, or since the last lap. */
  const read = async () => since(await totals(member, options));
  /**
   * Messages on streams are counted when etcd reads them, which no answer tells: reads until `expected` has been
   * reached, and counts anew from there.
   * @param {Spent} expected @param {{ timeoutMs?: number }} [options]
   * @returns {Promise<Spent>} what was spent: `expected`, or more, or what it had come to after `timeoutMs`
   */
  const lap = async (expected, { timeoutMs = 5000 } = {}) => {
    const until = performance.now() + timeoutMs;
    for (;;) {
      const after = await totals(member, options);
      const spent = since(after);
      const reached = Object.entries(expected).every(([what, sum]) => (spent[what] ?? 0) >= sum);
      if (!reached && performance.now() < until) continue;
      before = after;
      return spent;
    }
  };
  return { read, lap };
}
