// What a deposed etcd leader does before 3.4.31 and 3.5.13 (etcd#15247): it goes on answering keepalives, in its old
// raft term, for leases that it does not renew.

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
 * A LeaseKeepAliveResponse to a LeaseKeepAliveRequest, whose only field is the ID of the lease.
 * @param {Buffer} request @param {Stray} stray
 */
function renewed(request, { term, ttlSeconds }) {
  const header = Buffer.concat([Buffer.from([0x20]), varint(term)]);
  const id = request.subarray(1);
  return Buffer.concat([
    Buffer.from([0x0a, header.length]),
    header,
    Buffer.from([0x10]),
    id,
    Buffer.from([0x18]),
    varint(BigInt(ttlSeconds)),
  ]);
}

/** @param {Buffer} message */
function framed(message) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** @param {bigint} value */
function varint(value) {
  const bytes = [];
  for (; value >= 0x80n; value >>= 7n) bytes.push(Number(value & 0x7fn) | 0x80);
  return Buffer.from([...bytes, Number(value)]);
}
