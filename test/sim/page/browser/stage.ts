import { byId, draw, make, setAttribute } from "../../../../src/tools/ui/page/dom.js";
import type { Flight, Frame, LinkView } from "../protocol.js";
import { FlightLayer, type Wire } from "./flights.js";
import type { Moment } from "./moment.js";
import { order } from "./post.js";
import { ProcessCard } from "./process-card.js";

const LOOKS: Partial<Record<LinkView["state"], string>> = { up: "up", cut: "cut", "slow or lossy": "slow" };

interface DrawnWire {
  readonly line: SVGElement;
  readonly catcher: SVGElement;
  readonly title: SVGElement;
}

/** The members of etcd above, the processes below, and the messages between them. */
export class Stage {
  readonly #svg = byId<HTMLElement>("wires") as unknown as SVGSVGElement;
  readonly #wireLayer = draw("g", {});
  readonly #flights: FlightLayer;
  #cards: readonly ProcessCard[] = [];
  #wires: DrawnWire[][] = [];
  #frame: Frame | undefined;

  constructor(private readonly moment: Moment) {
    const flights = draw("g", {});
    this.#svg.append(this.#wireLayer, flights);
    this.#flights = new FlightLayer(flights);
    const animate = (): void => {
      this.#flights.place(this.moment.now, (flight) => this.#wireOf(flight));
      requestAnimationFrame(animate);
    };
    requestAnimationFrame(animate);
    addEventListener("resize", () => this.#placeWires());
  }

  clear(): void {
    this.#flights.clear();
    this.#cards = [];
  }

  set(frame: Frame): void {
    this.#frame = frame;
    if (
      this.#cards.length !== frame.processes.length ||
      byId("members").childElementCount !== frame.members.length
    )
      this.#build(frame);
    frame.processes.forEach((process, n) => {
      this.#cards[n]!.set(process, frame.phase === "work");
      process.links.forEach((link, member) => this.#showLink(this.#wires[n]![member]!, link));
    });
    this.#flights.set(frame.flights);
  }

  #build({ members, processes }: Frame): void {
    byId("members").replaceChildren(...members.map((name) => make("li", { class: "member" }, name)));
    this.#cards = processes.map((_, n) => new ProcessCard(n, members));
    byId("processes").replaceChildren(...this.#cards.map(({ element }) => element));
    this.#wireLayer.replaceChildren();
    this.#wires = processes.map((_, n) => members.map((__, member) => this.#newWire(n, member)));
    this.#placeWires();
  }

  #newWire(process: number, member: number): DrawnWire {
    const line = draw("line", { class: "wire" });
    const catcher = draw("line", { class: "catch" });
    const title = draw("title", {});
    catcher.append(title);
    catcher.addEventListener("click", () => {
      const healed = this.#frame?.processes[process]?.links[member]?.order;
      if (healed === undefined) order("cut", `${process}>${member}`);
      else order("heal", healed);
    });
    this.#wireLayer.append(line, catcher);
    return { line, catcher, title };
  }

  #showLink({ line, title }: DrawnWire, { state, order: number }: LinkView): void {
    setAttribute(line, "data-state", LOOKS[state] ?? "quiet");
    const text = number === undefined ? `Link: ${state}. Click to cut it.` : "Link: cut. Click to heal it.";
    if (title.textContent !== text) title.textContent = text;
  }

  #placeWires(): void {
    this.#wires.forEach((wires, process) =>
      wires.forEach(({ line, catcher }, member) => {
        const { fromX, toX, height } = this.#wire(process, member);
        for (const each of [line, catcher])
          for (const [name, value] of Object.entries({ x1: fromX, y1: height, x2: toX, y2: 0 }))
            each.setAttribute(name, String(value));
      }),
    );
  }

  #wireOf({ process, member }: Flight): Wire | undefined {
    return this.#wires[process]?.[member] && this.#wire(process, member);
  }

  #wire(process: number, member: number): Wire {
    const box = this.#svg.getBoundingClientRect();
    const middle = (list: string, n: number): number => {
      const of = byId(list).children[n]!.getBoundingClientRect();
      return of.left + of.width / 2 - box.left;
    };
    return {
      fromX: middle("processes", process),
      toX: middle("members", member),
      ...{ height: box.height, width: box.width },
    };
  }
}
