// A member of a group of shards. `node shards-program.js OPTIONS ID`: options of connect, group and count as JSON. Prints "all" when
// it owns as many shards as `until` says. With `records`, its work lasts until its signal, and at SIGTERM it leaves the group, and prints
// when each work began and ended: nanoseconds of a clock that all processes share.
import { once } from "node:events";
import { connect, shards } from "leasehold";

const [options = "{}", id] = process.argv.slice(2);
const { group, count, until, records, ...connection } = JSON.parse(options);
/** @type {{ id: number, begun: string, ended?: string }[]} */
const works = [];
let owned = 0;
const now = () => process.hrtime.bigint().toString();

const cluster = connect(connection);
const feeds = await shards(cluster, group, { count, id, settleMs: 0 }, async ({ id, signal }) => {
  owned++;
  if (owned === until) console.log("all");
  if (!records) return;
  const work = { id, begun: now(), ended: "" };
  works.push(work);
  await once(signal, "abort");
  work.ended = now();
});
if (records)
  process.once("SIGTERM", async () => {
    await feeds.close();
    await cluster.close();
    console.log(JSON.stringify(works));
  });
