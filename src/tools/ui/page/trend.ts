import { count, draw, make, setAttribute, setText, timeOfDay } from "./dom.js";
import type { Counts } from "./store.js";

const MINUTE_MS = 60_000;
const MINUTES = 60;
const WIDTH = 180;
const HEIGHT = 28;

/** Nobody has counted what was before. */
const periodOf = (since: number, now: number): string =>
  now - since >= MINUTES * MINUTE_MS
    ? "in the last hour"
    : `since ${timeOfDay(since)}, when this page's server began to count`;

/** The line of the hand-overs in each minute of the last hour. */
export class Trend {
  readonly #line = draw("polyline", {});
  readonly #svg = draw("svg", { class: "trend", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
  readonly #sum = make("span");
  readonly element = make("p", { class: "sub trend-line" });

  constructor() {
    this.#svg.append(this.#line);
    this.element.append(this.#svg, this.#sum);
  }

  show({ perMinute, now: at, countedSince }: Counts, now: number): void {
    // Minutes pass without a message, too.
    const passed = Math.max(0, Math.floor(now / MINUTE_MS) - Math.floor(at / MINUTE_MS));
    const none = Array.from<number>({ length: MINUTES }).fill(0);
    const counts = [...none, ...perMinute, ...none.slice(0, passed)].slice(-MINUTES);
    const most = Math.max(1, ...counts);
    const points = counts.map(
      (each, n) => `${(n * WIDTH) / (MINUTES - 1)},${HEIGHT - 1 - (each * (HEIGHT - 2)) / most}`,
    );
    const sum = counts.reduce((a, b) => a + b, 0);
    setAttribute(this.#line, "points", points.join(" "));
    setAttribute(this.#svg, "aria-label", `Most in one minute: ${Math.max(...counts)}`);
    setText(this.#sum, `${count(sum, "hand-over")} ${periodOf(countedSince, now)}`);
  }
}
