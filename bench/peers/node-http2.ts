// Node's own HTTP/2 with leasehold's protobuf: what a transport costs that leaves the frames to Node.js.
import { once } from "node:events";
import http2, { type ClientHttp2Session, type IncomingHttpHeaders } from "node:http2";
import { ownCodec } from "./build.js";
import { caller, TXN } from "./calls.js";
import type { Connect } from "./client.js";

/** One byte that says whether the message is compressed, four for its length. */
const PREFIX_BYTES = 5;

export const connect: Connect = async ({ addresses, build }) => {
  const { encodeTxns, decodeTxns } = await ownCodec(build);
  const session = http2.connect(`http://${addresses[0]}`);
  await once(session, "connect");
  // Each request in flight gets the error too.
  session.on("error", () => {});
  const send = async (txns: Parameters<typeof encodeTxns>[0]) => {
    const body = await post(session, encodeTxns(txns));
    return decodeTxns(body.subarray(PREFIX_BYTES, PREFIX_BYTES + body.readUInt32BE(1)), txns.length);
  };
  return caller(send, () => session.close());
};

const HEADERS = {
  ...{ ":method": "POST", ":path": TXN, "content-type": "application/grpc", te: "trailers" },
} as const;

function post(session: ClientHttp2Session, message: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const stream = session.request(HEADERS);
    const parts: Buffer[] = [];
    let status: string | string[] | undefined;
    stream.on("trailers", (trailers: IncomingHttpHeaders) => (status = trailers["grpc-status"]));
    stream.on("data", (part: Buffer) => parts.push(part));
    stream.on("error", reject);
    stream.on("end", () => {
      const [first] = parts;
      if (status !== "0" || first === undefined) reject(new Error(`grpc-status ${String(status)}`));
      else resolve(parts.length === 1 ? first : Buffer.concat(parts));
    });
    stream.end(message);
  });
}
