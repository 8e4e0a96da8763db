import { beforeAll, describe, expect, it } from "vitest";
import { sources, type Build } from "../../sim/run/build.js";
import { runSim } from "../../sim/run/sim-run.js";
import { parseOrder } from "../../sim/page/orders.js";
import { PlaySession } from "../../sim/page/session.js";
import { formatSetting, parseSetting, type Setting } from "../../sim/page/setting.js";
import { frameOf } from "../../sim/page/frame.js";

const CALM = "version=3.6&of=mutex&processes=3&lanes=1&names=1&ttl=5&faults=";

let build: Build;
beforeAll(async () => {
  build = await sources();
});

/** Short: every other test of the simulation has longer ones. */
const settingOf = (query: string): Setting => {
  const { options, ...rest } = parseSetting(query);
  return { ...rest, options: { ...options, calls: 40 } };
};
const sessionOf = (query: string): PlaySession => new PlaySession(settingOf(query), build);

/** Resolves when the session stands still before an event for which `found()` is true. */
async function until(session: PlaySession, found: () => boolean): Promise<void> {
  await new Promise<void>((resolve) => {
    session.pacer.seek(() => {
      if (!found()) return false;
      resolve();
      return true;
    });
  });
  // The kernel is held only when `seek` has returned.
  await new Promise((resolve) => setImmediate(resolve));
}

const eventsOf = ({ run }: PlaySession): number => run.world.kernel.events;
const after = (session: PlaySession, events: number) => (): boolean => eventsOf(session) >= events;

describe("a run on the page", { timeout: 120_000 }, () => {
  it.each(["3"])("of seed %s that is stepped and paced is the run of the command", async (seed) => {
    const { hash, calls } = await runSim({ ...settingOf(`seed=${seed}`).options, build });
    const session = sessionOf(`seed=${seed}`);
    const played = session.play();
    for (let n = 1; n <= 20; n++) {
      await until(session, after(session, n));
      expect(eventsOf(session)).toBe(n);
    }
    session.pacer.setSpeed(100, true);
    session.pacer.play();
    await until(session, after(session, 500));
    session.pacer.seek(() => false);
    await played;

    expect(session.phase).toBe("over");
    expect(session.run.result()).toMatchObject({ hash, calls });
  });

  it("is the same again with what was broken by hand, from the query of its address", async () => {
    const session = sessionOf(`seed=22&${CALM}`);
    const played = session.play();
    await until(session, after(session, 150));
    session.order(parseOrder("kill w0.0"));
    session.pacer.step();
    await until(session, after(session, 200));
    session.order(parseOrder("fault link-lossy"));
    await until(session, after(session, 350));
    session.order(parseOrder("heal 1"));
    session.order(parseOrder("cut 1>0"));
    session.pacer.seek(() => false);
    await played;
    const query = formatSetting(session.repeated);
    const again = sessionOf(query);
    again.pacer.seek(() => false);
    await again.play();

    expect(query).toMatch(/orders=150@[\d.]+\+kill\+w0\.0/);
    expect(again.run.result()).toEqual(session.run.result());
    expect(again.run.result().hash).not.toBe((await calm()).hash);
    expect(formatSetting(again.repeated)).toBe(query);
    expect(again.run.result().run.history.filter(({ k }) => k === "nemesis")).toHaveLength(6);
  });

  it("breaks no invariant when its processes are killed and its keys deleted by hand", async () => {
    const session = sessionOf(`seed=22&${CALM}`);
    const played = session.play();
    await until(session, after(session, 500));
    session.order(parseOrder("kill w1.0"));
    await until(session, after(session, 700));
    const [key] = session.run.world.crew.livingKeys();
    session.order(parseOrder(`delete ${key}`));
    session.pacer.seek(() => false);
    await played;

    expect(session.broken).toEqual([]);
    expect(session.judged).toBe(true);
  });

  it("refuses what cannot be done now", async () => {
    const session = sessionOf(`seed=22&${CALM}`);
    void session.play();
    await until(session, after(session, 50));
    const refusalOf = (text: string): string => {
      try {
        session.order(parseOrder(text));
      } catch (error) {
        return (error as Error).message;
      }
      return "none";
    };
    session.order(parseOrder("pause w0.0"));
    await until(session, after(session, 60));

    expect(refusalOf("pause w0.0")).toBe("w0.0 is paused already");
    expect(refusalOf("kill w7.0")).toBe("There is no process w7.0 now: there are w0.0, w1.0, w2.0");
    expect(refusalOf("delete nothing")).toBe("etcd has no key nothing");
    expect(refusalOf("heal 9")).toBe("Order 9 has nothing to heal");
    expect(refusalOf("fault earthquake")).toBe('There is no fault "earthquake"');
    expect(refusalOf("dance")).toMatch(/^Expected an order: one of fault, pause/);
    session.pacer.end();
  });

  it("shows the messages that are on their way, and those that a cut link loses", async () => {
    const session = sessionOf(`seed=22&${CALM}`);
    void session.play();
    const answers = () =>
      frameOf(session).flights.filter(({ process, direction }) => process === 0 && direction === "answer");
    await until(session, () => answers().some(({ fate, kind }) => fate === "flying" && kind === "lease"));
    const flying = frameOf(session).flights;
    session.order(parseOrder("cut 0>0"));
    const lost = (): boolean => frameOf(session).flights.some(({ fate }) => fate === "lost");
    await until(session, lost);

    expect(flying.map(({ kind }) => kind)).toContain("lease");
    expect(flying.every(({ sent, due }) => due > sent)).toBe(true);
    expect(frameOf(session).processes[0]?.links).toEqual([{ state: "cut", order: 1 }]);
    session.pacer.end();
  });

  it("shows the queue of each name with the holder first, its lease and its fence", async () => {
    const session = sessionOf(`seed=22&${CALM}`);
    void session.play();
    await until(session, () => {
      session.story.more();
      return (
        frameOf(session).queues[0]!.entries.length > 1 && frameOf(session).queues[0]!.entries[0]!.granted
      );
    });
    const [holder, waiter] = frameOf(session).queues[0]!.entries;

    expect(holder).toMatchObject({ granted: true, ttlMs: 5000 });
    expect(Number(holder!.fence)).toBeLessThan(Number(waiter!.fence));
    expect(waiter!.granted).toBe(false);
    expect(waiter!.leftMs).toBeGreaterThan(0);
    session.pacer.end();
  });
});

async function calm() {
  return runSim({ ...settingOf(`seed=22&${CALM}`).options, build });
}
