// A member of a group of shards. `node shards-program.js OPTIONS ID`: options of connect, group and count as JSON. Prints "all" when
// it owns as many shards as `until` says.
import { connect, shards } from "leasehold";

const [options = "{}", id] = process.argv.slice(2);
const { group, count, until, ...connection } = JSON.parse(options);
let owned = 0;
await shards(connect(connection), group, { count, id, settleMs: 0 }, () => {
  owned++;
  if (owned === until) console.log("all");
});
