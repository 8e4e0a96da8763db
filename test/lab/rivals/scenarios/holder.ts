// Faults that hit the holder.
import { cut, kill, pause, shiftClock } from "../faults.js";
import { within } from "../patience.js";
import { PATIENCE_MS } from "../stage.js";
import { letOthersTry, LONG_MS, type Scenario } from "./scenario.js";

export const pausedHolder: Scenario = {
  name: "paused-holder",
  title: "the holder is stopped for longer than the TTL, then writes and releases",
  async play(stage) {
    const [a, b, c] = await stage.start();
    const hold = await stage.acquire(a);
    const waits = [stage.ask(b), stage.ask(c)];
    const seq = (await hold.read()) ?? 0;
    const resume = await pause(stage, a);
    const next = await stage.first(waits);
    await next?.increment();

    await resume();
    await hold.write(seq + 1);
    await within(PATIENCE_MS, hold.release());

    await letOthersTry(stage, waits, next);
    await stage.serve(waits);
  },
};

export const killedHolder: Scenario = {
  name: "killed-holder",
  title: "the holder is killed with a write on its way, which arrives after the next one's",
  async play(stage) {
    const [a, b, c] = await stage.start();
    const hold = await stage.acquire(a);
    const waits = [stage.ask(b), stage.ask(c)];
    const seq = (await hold.read()) ?? 0;
    const deliver = await hold.send(seq + 1);
    await kill(stage, a);
    const next = await stage.first(waits);
    await next?.increment();

    deliver?.();

    await stage.serve(waits);
  },
};

export const cutOffHolder: Scenario = {
  name: "cut-off-holder",
  title: "the holder's packets vanish for longer than the TTL; it writes, and releases when they pass again",
  async play(stage) {
    const [a, b, c] = await stage.start();
    const hold = await stage.acquire(a);
    const waits = [stage.ask(b), stage.ask(c)];
    const seq = (await hold.read()) ?? 0;
    const heal = await cut(stage, a, "blackhole");
    const next = await stage.first(waits);
    await next?.increment();
    await hold.write(seq + 1);
    await within(LONG_MS, hold.lost);

    await heal();
    await within(PATIENCE_MS, hold.release());

    await letOthersTry(stage, waits, next);
    await stage.serve(waits);
  },
};

export const clockForth: Scenario = {
  name: "clock-forth",
  title: "the wall clocks of holder and waiter jump an hour forth",
  suits: ({ movesClock }) => movesClock,
  async play(stage) {
    const [a, b] = await stage.start();
    const hold = await stage.acquire(a);
    const wait = stage.ask(b);
    await shiftClock(stage, a, 1);
    await shiftClock(stage, b, 1);
    await within(LONG_MS, hold.lost);

    await within(PATIENCE_MS, hold.release());

    await stage.serve([wait]);
  },
};

export const clockBack: Scenario = {
  name: "clock-back",
  title: "the holder's wall clock jumps an hour back, then its connections break for longer than the TTL",
  suits: ({ movesClock }) => movesClock,
  async play(stage) {
    const [a, b] = await stage.start();
    const hold = await stage.acquire(a);
    const wait = stage.ask(b);
    await shiftClock(stage, a, -1);
    const heal = await cut(stage, a, "refuse");
    await stage.first([wait]);
    await within(LONG_MS, hold.lost);

    await heal();
    await within(PATIENCE_MS, hold.release());

    await stage.serve([wait]);
  },
};
