// The hooks for idempotency keys of examples/frameworks, in the real servers: run by `npm run test:all -- frameworks`, with an etcd at ETCD.
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { test } from "node:test";
import express from "express";
import Fastify from "fastify";
import { connect, inspect } from "leasehold";
import { idempotent as expressHook } from "./idempotency-express.js";
import { idempotent as fastifyHook } from "./idempotency-fastify.js";

const { ETCD: hosts } = process.env;

/** What the handlers do, and how often they have begun. */
class Bank {
  #events = new EventEmitter();
  runs = 0;

  /** Resolves with what to send. */
  async pay(what, { amount }) {
    const id = ++this.runs;
    this.#events.emit("begun");
    const json = { "content-type": "application/json; charset=utf-8", location: `/payments/${id}` };
    if (what === "slow") await once(this.#events, "end");
    if (what === "throws") throw new Error("no answer from the bank");
    if (what === "fails") return { status: 503, headers: json, body: '{"later":true}' };
    if (what === "declines") return { status: 402, headers: json, body: '{"declined":true}' };
    if (what === "empty") return { status: 204, headers: {}, body: undefined };
    if (what === "image")
      return { status: 200, headers: { "content-type": "image/png" }, body: Buffer.of(137, 0, 255) };
    if (what === "streams")
      return { status: 200, headers: { "content-type": "text/csv" }, body: Readable.from(["a,b\n", "☃\n"]) };
    if (what === "large") return { status: 200, headers: json, body: JSON.stringify("x".repeat(70_000)) };
    return { status: 201, headers: json, body: JSON.stringify({ id, amount }) };
  }

  begun = () => once(this.#events, "begun");
  end = () => this.#events.emit("end");
}

/** The same promises for each server. @param {string} url @param {Bank} bank @param {import("leasehold").Cluster} cluster */
async function promises(url, bank, cluster) {
  let last = 0;
  const newKey = () => `key-${++last}`;
  async function pay(what, key, { amount = 10, user = "ann", path = "payments", signal } = {}) {
    const response = await fetch(`${url}/${path}/${what}`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        user,
        ...(key !== undefined && { "Idempotency-Key": key }),
      },
      body: JSON.stringify({ amount }),
      signal,
    });
    const { status, headers } = response;
    const [type, location, replayed, retry] = [
      ...["content-type", "location", "idempotent-replayed", "retry-after"].map((name) => headers.get(name)),
    ];
    return {
      status,
      type,
      location,
      replayed,
      retry,
      body: Buffer.from(await response.arrayBuffer()).toString(),
    };
  }
  /** How often the handler has run meanwhile. */
  async function runsOf(work) {
    const before = bank.runs;
    await work();
    return bank.runs - before;
  }
  const refused = ({ status, type, body }, expected) => {
    assert.equal(status, expected);
    assert.match(type, /^application\/problem\+json/);
    assert.equal(JSON.parse(body).status, expected);
  };

  // A replay has status, type, location and body of the first response, and says so. The handler has run once.
  for (const what of ["works", "declines", "empty", "image", "streams"]) {
    const key = newKey();
    const runs = await runsOf(async () => {
      const first = await pay(what, key);
      const replay = await pay(what, key);
      assert.equal(first.replayed, null);
      assert.deepEqual(replay, { ...first, replayed: "true" });
    });
    assert.equal(runs, 1, what);
  }

  // 409 while the first one runs, and 422 for another body or path, then and later.
  const key = newKey();
  const begun = bank.begun();
  const first = pay("slow", key);
  await begun;
  const running = await pay("slow", key);
  refused(running, 409);
  assert.equal(running.retry, "1");
  refused(await pay("slow", key, { amount: 20 }), 422);
  bank.end();
  assert.equal((await first).status, 201);
  refused(await pay("slow", key, { amount: 20 }), 422);
  refused(await pay("works", key), 422);
  assert.deepEqual(await pay("slow", key), { ...(await first), replayed: "true" });

  // The key of another user is another one, even if both together are the same text.
  assert.equal((await pay("works", "b/c", { user: "a" })).replayed, null);
  assert.equal((await pay("works", "c", { user: "a/b" })).replayed, null);
  assert.equal((await pay("works", "B/C", { user: "a" })).replayed, null);

  // 400 without a key, or with one that is none; without a key, each request runs where none is required.
  for (const bad of [undefined, "", "two words", "x".repeat(256)]) refused(await pay("works", bad), 400);
  assert.equal((await pay("works", `${"%".repeat(254)}z`)).status, 201);
  const free = { path: "free" };
  assert.equal(
    await runsOf(() => Promise.all([pay("works", undefined, free), pay("works", undefined, free)])),
    2,
  );

  // 5xx is not kept, unless asked for.
  for (const [what, status] of [
    ["fails", 503],
    ["throws", 500],
  ]) {
    const again = newKey();
    const runs = await runsOf(async () => {
      for (const each of [await pay(what, again), await pay(what, again)])
        assert.deepEqual([each.status, each.replayed], [status, null]);
      refused(await pay(what, again, { amount: 20 }), 422);
    });
    assert.equal(runs, 2);
  }
  const kept = newKey();
  const runs = await runsOf(async () => {
    const failure = await pay("fails", kept, free);
    assert.deepEqual(await pay("fails", kept, free), { ...failure, replayed: "true" });
  });
  assert.equal(runs, 1);

  // A response that is too large to be kept is sent, and its retry runs nothing.
  const large = newKey();
  assert.equal((await pay("large", large)).body.length, 70_002);
  const tooLarge = await pay("large", large);
  refused(tooLarge, 500);
  assert.match(tooLarge.body, /too large/);

  // The run of a client that has gone goes on, and its retry gets the response.
  const gone = new AbortController();
  const late = newKey();
  const lateBegun = bank.begun();
  const left = pay("slow", late, { signal: gone.signal });
  await lateBegun;
  gone.abort();
  await assert.rejects(left);
  bank.end();
  let replay = await pay("slow", late);
  while (replay.status === 409) replay = await pay("slow", late);
  assert.deepEqual([replay.status, replay.replayed], [201, "true"]);

  // What was lost does not run again.
  const lost = newKey();
  const lostBegun = bank.begun();
  const lostCall = pay("slow", lost);
  await lostBegun;
  const { holders } = await inspect(cluster, `idempotency/ann%2F${lost}`);
  const at = Buffer.from(holders[0].key).toString("base64");
  await fetch(`${hosts.split(",")[0]}/v3/kv/deleterange`, {
    method: "POST",
    body: JSON.stringify({ key: at }),
  });
  refused(await pay("slow", lost), 500);
  bank.end();
  assert.equal((await lostCall).status, 201);
  const unknown = await pay("slow", lost);
  refused(unknown, 500);
  assert.match(unknown.body, /unknown/);
}

const userOf = ({ headers }) => headers.user;

test("Express replays", async () => {
  const bank = new Bank();
  const cluster = connect({ hosts, prefix: "express/" });
  const app = express();
  const handler = async (request, response) => {
    const { status, headers, body } = await bank.pay(request.params.what, request.body);
    response.status(status).set(headers);
    if (body instanceof Readable) body.pipe(response);
    else response.send(body);
  };
  app.use(express.json());
  app.post("/payments/:what", expressHook(cluster, { userOf }), handler);
  app.post("/free/:what", expressHook(cluster, { userOf, required: false, keepErrors: true }), handler);
  app.use((_error, _request, response, _next) => response.status(500).send("broken"));
  const server = createServer(app).listen(0);
  await once(server, "listening");
  await promises(`http://127.0.0.1:${server.address().port}`, bank, cluster);
  server.close();
  server.closeAllConnections();
  await cluster.close();
});

test("Fastify replays", async () => {
  const bank = new Bank();
  const cluster = connect({ hosts, prefix: "fastify/" });
  const app = Fastify();
  const handler = async (request, reply) => {
    const { status, headers, body } = await bank.pay(request.params.what, request.body);
    return reply.code(status).headers(headers).send(body);
  };
  app.post("/payments/:what", fastifyHook(cluster, { userOf }), handler);
  app.post("/free/:what", fastifyHook(cluster, { userOf, required: false, keepErrors: true }), handler);
  await promises(await app.listen({ port: 0 }), bank, cluster);
  await app.close();
  await cluster.close();
});
