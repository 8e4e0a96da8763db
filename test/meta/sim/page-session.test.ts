import { describe, expect, it } from "vitest";
import { parseOrder } from "../../sim/page/orders.js";
import { PlaySession } from "../../sim/page/session.js";
import { formatSetting, parseSetting, type Setting } from "../../sim/page/setting.js";
import { frameOf } from "../../sim/page/frame.js";
import { sources } from "../../sim/run/build.js";
import { runSim } from "../../sim/run/sim-run.js";

const CALM = "seed=22&version=3.6&of=mutex&processes=3&lanes=1&names=1&ttl=5&faults=";

const build = await sources();

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
  it("that is stepped and paced is the run of the command", async () => {
    const { hash, calls } = await runSim({ ...settingOf("seed=3").options, build });
    const session = sessionOf("seed=3");
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

  it("is the same again with what was broken by hand, from the query of its address, and is judged", async () => {
    const session = sessionOf(CALM);
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
    expect(formatSetting(again.repeated)).toBe(query);
    expect([session.judged, session.broken]).toEqual([true, []]);
  });

  it("shows the messages that a cut link loses, and the queue of each name with the holder first", async () => {
    const session = sessionOf(CALM);
    void session.play();
    await until(session, () => {
      session.story.more();
      const { entries } = frameOf(session).queues[0]!;
      return entries.length > 1 && entries[0]!.granted;
    });
    const [holder, waiter] = frameOf(session).queues[0]!.entries;
    expect([holder!.granted, waiter!.granted]).toEqual([true, false]);
    expect(Number(holder!.fence)).toBeLessThan(Number(waiter!.fence));

    session.order(parseOrder("cut 0>0"));
    await until(session, () => frameOf(session).flights.some(({ fate }) => fate === "lost"));
    expect(frameOf(session).processes[0]?.links).toEqual([{ state: "cut", order: 1 }]);
    session.pacer.end();
  });
});
