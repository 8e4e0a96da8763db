import http from "node:http";
import type { Address } from "./link.js";

/** etcd has answered, and refused. */
export class RefusedError extends Error {}

const ANSWER_MS = 2_000;

/** One request on its own connection: a pooled one may lead to a process that has been killed since. */
function send({ host, port }: Address, path: string, body?: object): Promise<string> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(ANSWER_MS);
    const method = body === undefined ? "GET" : "POST";
    const request = http.request({ host, port, path, method, signal, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (text += chunk));
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new RefusedError(`${path}: ${response.statusCode} ${text}`));
      });
    });
    request.on("error", reject);
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** POST to etcd's JSON gateway, with keys in base64 and numbers of 64 bits as text. */
export async function ask<T>(address: Address, path: string, body: object): Promise<T> {
  return JSON.parse(await send(address, path, body)) as T;
}

/** What is wrong with the member; empty if it has confirmed a read with a majority. */
export async function wrongWith(address: Address): Promise<string> {
  return ask(address, "/v3/kv/range", { key: base64("\0") }).then(() => "", String);
}

/** One of etcd's metrics; 0 if it has none of this name. */
export async function metric(address: Address, name: string): Promise<number> {
  const lines = (await send(address, "/metrics")).split("\n");
  return Number(lines.find((line) => line.startsWith(`${name} `))?.slice(name.length + 1) ?? 0);
}

export const base64 = (text: string): string => Buffer.from(text).toString("base64");
export const fromBase64 = (text: string): string => Buffer.from(text, "base64").toString();
