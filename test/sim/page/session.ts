import { judge, LABELS } from "../../lab/checker/judge.js";
import { MEANWHILE } from "../run/live.js";
import { SimRun } from "../run/sim-run.js";
import type { Build } from "../run/build.js";
import { Flights } from "./flights.js";
import { handFault, isMomentary } from "./hand-faults.js";
import { BadRequest, type Order, type PlacedOrder } from "./orders.js";
import { Pacer } from "./pacer.js";
import type { Affliction, Broken, Frame } from "./protocol.js";
import type { Setting } from "./setting.js";
import { Story } from "./story/story.js";

/** The numbers of faults by hand begin after those of the plan: each has random numbers of its own. */
const FIRST_BY_HAND = 1_000_000;

interface Afflicted extends Affliction {
  readonly target: string;
  readonly action: Order["action"];
  heal(): void;
}

/** A run that can be slowed down, stopped, and broken by hand. The same setting, with the same orders, is the same run. */
export class PlaySession {
  readonly run: SimRun;
  readonly pacer: Pacer;
  readonly flights: Flights;
  readonly story: Story;
  phase: Frame["phase"] = "work";
  problem = "";
  broken: readonly Broken[] = [];
  judged = false;
  /** What was ordered so far, in the order of the run. */
  readonly #orders: PlacedOrder[] = [];
  /** Of the setting: still to come. */
  readonly #coming: PlacedOrder[];
  #asked: Order[] = [];
  /** Scheduled and not carried out yet. */
  #scheduled = 0;
  readonly #afflicted = new Map<number, Afflicted>();

  constructor(
    readonly setting: Setting,
    build: Build,
  ) {
    this.#coming = [...setting.orders];
    const pacer = new Pacer(
      () => this.run?.world.kernel ?? { now: 0, events: 0 },
      () => this.#beforeEvent(),
    );
    this.pacer = pacer;
    this.run = new SimRun({ ...setting.options, build, hold: pacer.hold });
    const { crew, kernel, history } = this.run.world;
    this.flights = new Flights(crew, kernel);
    this.story = new Story({ history, server: crew.server.events }, this.run.result().run.setting.locks);
  }

  /** Of a run that is over, or has failed. */
  async play(): Promise<void> {
    try {
      await this.run.work();
      this.phase = "settle";
      for (const afflicted of this.#afflicted.values()) afflicted.heal();
      this.#afflicted.clear();
      await this.run.settle();
      this.phase = "over";
      this.judge();
    } catch (error) {
      this.phase = "failed";
      this.problem = String(error);
    }
  }

  /** So far: repeats what was done by hand. */
  get repeated(): Setting {
    return { ...this.setting, orders: [...this.#orders, ...this.#coming] };
  }

  /** What an order has broken. */
  get afflictions(): readonly Afflicted[] {
    return [...this.#afflicted.values()];
  }

  /** Carried out before the next event. @throws {BadRequest} if that is not possible now */
  order(order: Order): void {
    if (this.phase !== "work") throw new BadRequest("The work has ended: faults can no longer be injected");
    if (order.action === "heal") this.#afflictionOf(order.target);
    else handFault(order, this.run.world.crew);
    this.#asked.push(order);
    this.pacer.wake();
  }

  /** Judges the run so far. */
  judge(): void {
    this.judged = this.phase === "over";
    const { violations } = judge(this.run.result().run, this.judged ? LABELS : MEANWHILE);
    this.broken = Object.entries(violations).flatMap(([label, texts]) =>
      texts.map((text) => ({ label, text })),
    );
  }

  #afflictionOf(target: string): Afflicted {
    const found = this.#afflicted.get(Number(target));
    if (found === undefined) throw new BadRequest(`Order ${target} has nothing to heal`);
    return found;
  }

  #beforeEvent(): "check again" | "run" | undefined {
    const { events, now } = this.run.world.kernel;
    const due = this.#due(events);
    const ms = Math.max(now, this.pacer.now);
    for (const order of this.#asked.splice(0)) due.push({ ...order, events, ms });
    for (const order of due) this.#schedule(order);
    if (due.length > 0) return "check again";
    return this.#scheduled > 0 ? "run" : undefined;
  }

  #due(events: number): PlacedOrder[] {
    const due: PlacedOrder[] = [];
    while (this.phase === "work" && this.#coming[0] !== undefined && this.#coming[0].events <= events)
      due.push(this.#coming.shift()!);
    return due;
  }

  #schedule(order: PlacedOrder): void {
    if (this.phase !== "work") return;
    this.#scheduled++;
    this.#orders.push(order);
    const number = this.#orders.length;
    this.run.world.kernel.at(order.ms, () => {
      this.#scheduled--;
      this.#carryOut(order, number);
    });
  }

  #carryOut(order: PlacedOrder, number: number): void {
    const { crew, kernel } = this.run.world;
    try {
      if (order.action === "heal") return this.#heal(this.#afflictionOf(order.target));
      const fault = handFault(order, crew);
      const heal = this.run.inflict(fault, FIRST_BY_HAND + number);
      if (heal === undefined) return;
      if (isMomentary(fault)) return void kernel.after(0, heal);
      const text = order.action === "fault" ? order.target : `${order.action} ${order.target}`;
      this.#afflicted.set(number, { order: number, text, target: order.target, action: order.action, heal });
    } catch (error) {
      // What was possible when it was ordered is not any more.
      if (!(error instanceof BadRequest)) throw error;
      kernel.log(error.message);
    }
  }

  #heal(afflicted: Afflicted): void {
    this.#afflicted.delete(afflicted.order);
    afflicted.heal();
  }
}
