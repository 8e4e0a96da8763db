// The behavior of a deposed etcd leader before 3.4.31 and 3.5.13 (etcd#15247): it keeps answering keepalives, in its
// old raft term, for leases that it does not renew.

import { fieldOf, message } from "../clients/protobuf.js";
import { framed } from "../fakes/raw-server.js";

/** @typedef {{ term: bigint, ttlSeconds: number }} Stray */

/**
 * Answers every renewal on this keepalive stream; nothing reaches etcd.
 * @param {import("node:http2").ServerHttp2Stream} client @param {Stray} stray
 */
export function answerAsStray(client, stray) {
  client.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  client.once("wantTrailers", () => client.sendTrailers({ "grpc-status": "0" }));
  client.once("end", () => client.end());
  let rest = Buffer.alloc(0);
  client.on("data", (/** @type {Buffer} */ chunk) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1);
      client.write(framed(renewed(rest.subarray(5, end), stray)));
      rest = rest.subarray(end);
    }
  });
}

/**
 * A LeaseKeepAliveResponse to a LeaseKeepAliveRequest, whose only field is the ID of the lease. No etcd has a lease 0,
 * whose
 * renewal is requested to distinguish etcd from its proxy.
 * @param {Buffer} request @param {Stray} stray
 */
function renewed(request, { term, ttlSeconds }) {
  const id = /** @type {bigint | undefined} */ (fieldOf(request, 1));
  const lease = id === undefined ? 0n : id;
  return message([
    [1, [[4, term]]],
    [2, lease],
    [3, lease === 0n ? 0 : ttlSeconds],
  ]);
}
