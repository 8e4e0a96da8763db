// How long a lock is held by a process that is dead, blocked, or does nothing.
import { setTimeout as delay } from "node:timers/promises";
import { block, kill } from "../faults.js";
import { within } from "../patience.js";
import { PATIENCE_MS, TTL_MS } from "../stage.js";
import { letOthersTry, LONG_MS, type Scenario } from "./scenario.js";

const ROUNDS = 5;
const IDLE_MS = 4 * TTL_MS;

export const crashes: Scenario = {
  name: "crashes",
  title: `the holder is killed with nothing under way, ${ROUNDS} times`,
  measured: { fault: "kill", holder: "killed" },
  async play(stage) {
    let [holder, waiter] = await stage.start();
    for (let round = 0; round < ROUNDS; round++) {
      await stage.acquire(holder);
      const wait = stage.ask(waiter);
      await delay((round / ROUNDS) * TTL_MS);
      await kill(stage, holder);
      await stage.serve([wait]);
      [holder, waiter] = [waiter, await stage.restart(holder)];
    }
  },
};

export const stalls: Scenario = {
  name: "stalls",
  title: `the holder is blocked for ${LONG_MS / TTL_MS} TTL: its main thread stands still, or in Go one goroutine computes; then writes and releases, ${ROUNDS} times`,
  measured: { fault: "block", holder: `blocked for ${LONG_MS / TTL_MS} TTL` },
  async play(stage) {
    const [holder, waiter] = await stage.start();
    for (let round = 0; round < ROUNDS; round++) {
      const hold = await stage.acquire(holder);
      const seq = (await hold.read()) ?? 0;
      const wait = stage.ask(waiter);
      const end = await block(stage, hold, holder, LONG_MS);
      const next = await stage.first([wait], LONG_MS);
      await next?.increment();

      await end();
      await hold.write(seq + 1);
      await within(PATIENCE_MS, hold.release());

      await stage.serve([wait]);
    }
  },
};

export const idles: Scenario = {
  name: "idles",
  title: `the holder's work stands still for ${IDLE_MS / TTL_MS} TTL, while its process runs`,
  measured: { fault: "idle", holder: `idle for ${IDLE_MS / TTL_MS} TTL` },
  async play(stage) {
    const [holder, waiter] = await stage.start();
    const hold = await stage.acquire(holder);
    const wait = stage.ask(waiter);
    const end = await stage.inflict({ fault: "idle", effect: "none", hits: [holder.p] }, () => {});
    const next = await stage.first([wait], IDLE_MS);
    await end();
    await within(PATIENCE_MS, hold.release());
    await letOthersTry(stage, [wait], next);
    await stage.serve([wait]);
  },
};
