import type { IncomingMessage } from "node:http";
import { forceRelease, inspect, type Cluster } from "../index.js";
import type { ReleaseRequest } from "./protocol.js";
import { MAX_KEY } from "./short-key.js";

/** A name has at most 1,024 bytes and a key a little more; JSON may need six characters for each. */
const MAX_BODY = 16_384;
/** As many as `inspect` reports. */
const LIMIT = 1000;

/** The status and the text of the answer. */
export type Answer = readonly [status: number, text: string];

/** Deletes the key that the request names, if it still has the same create revision. */
export async function release(
  request: IncomingMessage,
  { cluster, prefix }: { readonly cluster: Cluster; readonly prefix: string },
): Promise<Answer> {
  const wanted = parse(await bodyOf(request));
  if (wanted === undefined) return [400, "expected JSON with name, key and revision"];
  const { name, key, revision } = wanted;
  if (key.length > MAX_KEY) return [400, "the key is too long for this page: use leasehold release"];
  if (!name.startsWith(prefix)) return [403, "this page does not show that name"];
  try {
    const { holders, waiters } = await inspect(cluster, name, { limit: LIMIT });
    const found = [...holders, ...waiters].find(
      (each) => each.key === key && String(each.revision) === revision,
    );
    const released = found && (await forceRelease(cluster, found));
    return released ? [200, "released"] : [409, "it was gone already"];
  } catch (error) {
    if (error instanceof RangeError) return [400, "no lock can have that name"];
    return [502, (error as Error).message];
  }
}

/** Undefined if it is too long or was cut off. */
async function bodyOf(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > MAX_BODY) return undefined;
      chunks.push(chunk);
    }
  } catch {
    return undefined;
  }
  return Buffer.concat(chunks).toString();
}

function parse(text: string | undefined): ReleaseRequest | undefined {
  if (text === undefined) return undefined;
  try {
    const { name, key, revision } = Object(JSON.parse(text)) as Record<string, unknown>;
    const areTexts = [name, key, revision].every((value) => typeof value === "string");
    return areTexts ? ({ name, key, revision } as ReleaseRequest) : undefined;
  } catch {
    return undefined;
  }
}
