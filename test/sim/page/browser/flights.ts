import { draw } from "../../../../src/tools/ui/page/dom.js";
import type { Flight } from "../protocol.js";

/** However fast the run is, a message is seen for so long. */
const LEAST_MS = 220;
/** A lost message stays visible for so long. */
const LOST_MS = 900;
/** More labels would hide each other. */
const MOST_LABELS = 7;
/** Requests and answers pass beside each other. */
const LANE = 7;

export interface Wire {
  readonly fromX: number;
  readonly toX: number;
  readonly height: number;
  readonly width: number;
}

interface Drawn {
  readonly group: SVGElement;
  readonly label: SVGElement;
  readonly seenAt: number;
  flight: Flight;
  endedAt: number | undefined;
}

/** The messages on the wires, each drawn where it is. */
export class FlightLayer {
  readonly #drawn = new Map<number, Drawn>();

  constructor(private readonly layer: SVGElement) {}

  clear(): void {
    this.#drawn.clear();
    this.layer.replaceChildren();
  }

  set(flights: readonly Flight[]): void {
    const real = performance.now();
    for (const flight of flights) {
      const drawn = this.#drawn.get(flight.id) ?? this.#add(flight, real);
      drawn.flight = flight;
      if (isOver(flight)) drawn.endedAt ??= real;
    }
    // What is not sent any more has ended at some time between two frames.
    const sent = new Set(flights.map(({ id }) => id));
    for (const drawn of this.#drawn.values()) if (!sent.has(drawn.flight.id)) drawn.endedAt ??= real;
  }

  /** `now`: the virtual time. */
  place(now: number, wireOf: (flight: Flight) => Wire | undefined): void {
    const real = performance.now();
    const labels = this.#drawn.size <= MOST_LABELS;
    for (const [id, drawn] of this.#drawn) {
      const progress = progressOf(drawn, now, real);
      const wire = wireOf(drawn.flight);
      if (wire === undefined || isDone(drawn, progress, real)) {
        drawn.group.remove();
        this.#drawn.delete(id);
      } else put(drawn, { progress, wire, labels });
    }
  }

  #add(flight: Flight, seenAt: number): Drawn {
    const { kind, direction, text } = flight;
    const group = draw("g", { class: "flight", "data-kind": kind, "data-direction": direction });
    const label = draw("text", { y: 4 }, text);
    group.setAttribute("data-fate", flight.fate);
    group.append(draw("circle", { r: 5 }), draw("path", { d: "M-5 -5l10 10m0-10l-10 10" }), label);
    this.layer.append(group);
    const drawn = { group, label, seenAt, flight, endedAt: undefined };
    this.#drawn.set(flight.id, drawn);
    return drawn;
  }
}

const isOver = ({ fate }: Flight): boolean => fate === "arrived" || fate === "lost";

function progressOf({ flight, endedAt, seenAt }: Drawn, now: number, real: number): number {
  const { sent, due, fate, id } = flight;
  if (fate === "held") return 0.4 + (id % 5) * 0.04;
  const passed = endedAt === undefined ? (now - sent) / Math.max(0.001, due - sent) : 1;
  const most = fate === "lost" ? 0.6 : 1;
  return Math.max(0, Math.min(most, passed, (real - seenAt) / LEAST_MS));
}

function isDone({ flight, endedAt }: Drawn, progress: number, real: number): boolean {
  if (endedAt === undefined) return false;
  return flight.fate === "lost" ? real - endedAt > LOST_MS : progress >= 1;
}

interface Place {
  readonly progress: number;
  readonly wire: Wire;
  readonly labels: boolean;
}

function put({ group, label, flight }: Drawn, { progress, wire, labels }: Place): void {
  const { fromX, toX, height, width } = wire;
  const up = flight.direction === "request";
  const part = up ? progress : 1 - progress;
  const x = fromX + (toX - fromX) * part + (up ? -LANE : LANE);
  const y = height - 8 - (height - 16) * part;
  group.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
  group.dataset["fate"] = flight.fate;
  const left = up && x > width * 0.25 ? true : x > width * 0.75;
  label.setAttribute("x", left ? "-10" : "10");
  label.setAttribute("text-anchor", left ? "end" : "start");
  label.textContent = labels ? `${flight.text}${flight.fate === "lost" ? ", lost" : ""}` : "";
}
