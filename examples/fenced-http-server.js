// @ts-check
// The resource's side of fenced-http.js: documents in memory, each behind a gate that rejects older fencing tokens.
// Documents that outlive the process need the gate's `highest` and `highestTurn` stored with them, for
// `new FenceGate(highest, highestTurn)`.
import { once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { FenceGate } from "leasehold";

/** @type {Map<string, { gate: FenceGate, content: string }>} */
const documents = new Map();

const server = createServer((request, response) => {
  answer(request, response).catch(() => response.destroy());
});
server.listen(Number(process.env["PORT"] ?? 8080));
await once(server, "listening");
console.log("listening");

/** @param {import("node:http").IncomingMessage} request @param {import("node:http").ServerResponse} response */
async function answer(request, response) {
  const { method, url = "/", headers } = request;
  const content = await text(request);
  // Nothing is awaited between here and the write: no other request runs between the comparison and the write.
  const document = documents.get(url) ?? { gate: new FenceGate(), content: "" };
  if (method === "GET") return response.end(document.content);
  if (method !== "PUT") return response.writeHead(405).end();
  const token = String(headers["fencing-token"]);
  const [, fence, turn = "1"] = /^(\d+)(?:\.(\d+))?$/.exec(token) ?? [];
  if (fence === undefined) return response.writeHead(428).end("Fencing-Token is required\n");
  try {
    document.gate.admit(BigInt(fence), Number(turn));
  } catch {
    return response.writeHead(412).end(`Fencing-Token ${token} is stale\n`);
  }
  documents.set(url, { ...document, content });
  return response.writeHead(204).end();
}
