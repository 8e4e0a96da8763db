// An object store over HTTP that honors the conditions of a write as Amazon S3 documents them, without signatures:
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
// - `If-None-Match: *`: 412 if the object exists.
// - `If-Match: ETAG`: 412 if the object has another ETag, 404 if there is none.
// - 409 if another write of the same object ends while this one is in progress.
// The ETag is the MD5 of the content. Metadata do not change it.
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

interface StoredObject {
  readonly content: string;
  readonly etag: string;
  readonly fence: string | undefined;
}

export class ToyS3 {
  readonly #objects = new Map<string, StoredObject>();
  readonly #server = createServer((request, response) => {
    this.#answer(request, response).catch(() => response.destroy());
  });
  /** Answers of writes so far. */
  readonly statuses: number[] = [];
  /** Called before a write is examined, once. */
  beforeWrite: (() => Promise<unknown>) | undefined;
  /** The next write gets 409, as if another one ended at the same time. */
  conflict = false;

  static async start(): Promise<ToyS3> {
    const store = new ToyS3();
    store.#server.listen(0, "127.0.0.1");
    await once(store.#server, "listening");
    return store;
  }

  url(key: string): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/${key}`;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = request.url ?? "";
    const content = await text(request);
    const found = this.#objects.get(key);
    if (request.method === "DELETE") {
      this.#objects.delete(key);
      response.writeHead(204).end();
    } else if (request.method === "PUT") {
      await this.#put(key, content, { request, response });
    } else if (found === undefined) {
      response.writeHead(404).end();
    } else {
      response.setHeader("ETag", found.etag);
      if (found.fence !== undefined) response.setHeader("x-amz-meta-fence", found.fence);
      response.end(found.content);
    }
  }

  async #put(
    key: string,
    content: string,
    { request, response }: { request: IncomingMessage; response: ServerResponse },
  ): Promise<void> {
    const interloper = this.beforeWrite;
    this.beforeWrite = undefined;
    await interloper?.();
    const status = this.#statusOf(key, request.headers);
    this.statuses.push(status);
    if (status !== 200) return void response.writeHead(status).end();
    const etag = `"${createHash("md5").update(content).digest("hex")}"`;
    const fence = request.headers["x-amz-meta-fence"];
    this.#objects.set(key, { content, etag, fence: fence === undefined ? undefined : String(fence) });
    response.setHeader("ETag", etag).end();
  }

  #statusOf(key: string, headers: IncomingMessage["headers"]): number {
    if (this.conflict) {
      this.conflict = false;
      return 409;
    }
    const found = this.#objects.get(key);
    if (headers["if-none-match"] === "*") return found === undefined ? 200 : 412;
    const match = headers["if-match"];
    if (match === undefined) return 200;
    if (found === undefined) return 404;
    return match === found.etag ? 200 : 412;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}
