// Runs the recipes of examples/frameworks against the real packages, an etcd and a Redis: in a folder with the packed library, by
// `npm run test:all -- frameworks`. ETCD and REDIS_PORT say where they are; without a Redis, BullMQ's test is left out.
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Queue, QueueEvents } from "bullmq";
import express from "express";
import Fastify from "fastify";
import { connect, inspect, Mutex } from "leasehold";
import { lockedWorker } from "./bullmq.js";
import { locked, refused } from "./express.js";
import { leasehold } from "./fastify.js";
import { Place, LeaseholdModule } from "./service.mjs";

const { ETCD: hosts, REDIS_PORT } = process.env;
const mine = connect({ hosts });
after(() => mine.close());

/** Work that the test ends itself, and how much of it runs at once. */
class Works {
  #ends = [];
  #begun = 0;
  #seen = 0;
  #begins = new EventEmitter();
  running = 0;
  most = 0;
  fences = [];

  do = async (lock) => {
    this.fences.push(lock.fence);
    this.most = Math.max(this.most, ++this.running);
    this.#begun++;
    this.#begins.emit("begun");
    await new Promise((resolve) => this.#ends.push(resolve));
    this.running--;
    return "done";
  };

  /** Resolves when one more has begun than was waited for before. */
  next = async () => {
    for (this.#seen++; this.#begun < this.#seen;) await once(this.#begins, "begun");
  };
  end = () => this.#ends.shift()();
}

/** @param {string} name @param {number} places */
async function untilPlaces(name, places) {
  for (;;) {
    const { holders, waiters } = await inspect(mine, name);
    if (holders.length + waiters.length === places) return;
  }
}

/** The same promises for each server. @param {string} url @param {Works} works @param {string} name */
async function serves(url, works, name) {
  const order = (signal) => fetch(`${url}/orders/ann`, { method: "POST", signal });
  const first = order();
  await works.next();
  const second = order();
  await untilPlaces(name, 2);
  const gone = new AbortController();
  const third = order(gone.signal);
  await untilPlaces(name, 3);
  gone.abort();
  await assert.rejects(third);
  await untilPlaces(name, 2);
  works.end();
  await works.next();
  works.end();
  assert.deepEqual(await Promise.all([first, second].map(async (each) => (await each).text())), [
    "done",
    "done",
  ]);
  assert.equal(works.most, 1);
  assert.ok(works.fences[1] > works.fences[0]);
  await new Mutex(mine, name).withLock(async () => {
    const busy = await order();
    assert.equal(busy.status, 429);
    assert.equal(busy.headers.get("retry-after"), "1");
  });
}

test("Fastify", async () => {
  const app = Fastify();
  const works = new Works();
  await app.register(leasehold, { hosts });
  app.post(
    "/orders/:user",
    app.locked(
      ({ params }) => `fastify/${params.user}`,
      (_, lock) => works.do(lock),
    ),
  );
  await serves(await app.listen({ port: 0 }), works, "fastify/ann");
  await app.close();
  await assert.rejects(new Mutex(app.cluster, "fastify/late").lock(), { code: "SESSION_CLOSED" });
});

test("Express", async () => {
  const works = new Works();
  const cluster = connect({ hosts });
  const app = express();
  const nameOf = ({ params }) => `express/${params.user}`;
  app.post(
    "/orders/:user",
    locked(cluster, nameOf, async (_, response, lock) => response.send(await works.do(lock))),
  );
  app.post(
    "/broken",
    locked(
      cluster,
      () => "express/broken",
      () => {
        throw new Error("of the handler");
      },
    ),
  );
  app.use(refused);
  app.use((error, _request, response, _next) => response.status(500).send(error.message));
  const server = createServer(app).listen(0);
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}`;
  await serves(url, works, "express/ann");
  assert.equal(await (await fetch(`${url}/broken`, { method: "POST" })).text(), "of the handler");
  server.close();
  server.closeAllConnections();
  await cluster.close();
});

test("NestJS", async () => {
  class App {}
  Module({ imports: [LeaseholdModule.of({ hosts })], providers: [Place] })(App);
  const [a, b] = await Promise.all(
    [1, 2].map(() => NestFactory.createApplicationContext(App, { logger: false })),
  );
  const works = new Works();
  const first = a.get(Place).place("ann", works);
  await works.next();
  await assert.rejects(b.get(Place).place("ann", works), (error) => error.getStatus() === 429);
  const other = b.get(Place).place("bob", works);
  await works.next();
  works.end();
  works.end();
  assert.deepEqual(await Promise.all([first, other]), ["done", "done"]);
  assert.deepEqual(Reflect.getMetadata("kept", Place.prototype.place), "yes");
  await assert.rejects(a.get(Place).place("fails", works), { message: "of the method" });
  await Promise.all([a.close(), b.close()]);
});

test("BullMQ", { skip: REDIS_PORT === undefined && "not run: no Redis" }, async () => {
  const connection = { host: "127.0.0.1", port: Number(REDIS_PORT), maxRetriesPerRequest: null };
  const works = new Works();
  const clusters = [connect({ hosts }), connect({ hosts })];
  const keyOf = (job) => job.data.user;
  const work = async (_, lock) => works.do(lock);
  const queue = new Queue("mails", { connection });
  const events = new QueueEvents("mails", { connection });
  await events.waitUntilReady();
  const workers = clusters.map((cluster) =>
    lockedWorker("mails", { cluster, keyOf, work, connection, concurrency: 2 }),
  );
  const jobs = await queue.addBulk(
    [1, 2, 3].map((n) => ({ name: `m${n}`, data: { user: "ann" }, opts: { attempts: 1 } })),
  );
  const delayed = once(events, "delayed");
  await works.next();
  // One waits for the lock until it is given back to Redis, which costs it no attempt.
  await delayed;
  for (let n = 1; n < jobs.length; n++) {
    works.end();
    await works.next();
  }
  works.end();
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events)));
  assert.equal(works.most, 1);
  assert.deepEqual(
    works.fences,
    [...works.fences].sort((x, y) => Number(x - y)),
  );
  await Promise.all([...workers, queue, events].map((each) => each.close()));
  await Promise.all(clusters.map((cluster) => cluster.close()));
});
