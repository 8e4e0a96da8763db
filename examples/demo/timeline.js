// @ts-check
// The live timeline: one row per event; in a terminal, the last line shows the current state.
import { describe, present } from "./describe.js";
import { now } from "./history.js";
import { painter, wantsColour } from "./paint.js";

/** @typedef {import("./stage.js").StageEvent} StageEvent */
/** @typedef {import("./live-queue.js").QueuePlace} QueuePlace */
/** @typedef {{ isTTY?: boolean, write: (text: string) => unknown }} Screen */
/** @typedef {{ holder: string | undefined, fence: number | undefined, counter: string, text: string }} Row */

const CLEAR = "\r\x1b[2K";
const NAMES_SHOWN = 6;

export class Timeline {
  #screen;
  #paint;
  #started = now();
  #counter = 0;
  /** @type {QueuePlace[]} */
  #places = [];
  /** @type {string | undefined} the event that is awaited */
  #pending;
  /** @type {NodeJS.Timeout | undefined} */
  #ticking;

  /** @param {Screen} screen */
  constructor(screen) {
    this.#screen = screen;
    this.#paint = painter(wantsColour(screen));
  }

  open() {
    this.say(this.#paint.dim("   time  holder  fence   counter   waiting       what happens"));
    if (wantsColour(this.#screen)) this.#ticking = setInterval(() => this.#showPresent(), 100);
  }

  close() {
    clearInterval(this.#ticking);
    if (this.#ticking) this.#screen.write(CLEAR);
    this.#ticking = undefined;
  }

  /** @param {string} line */
  say(line) {
    this.#screen.write(`${this.#ticking ? CLEAR : ""}${line}\n`);
    if (this.#ticking) this.#showPresent();
  }

  /** @param {StageEvent} event */
  show(event) {
    const told = describe(event, this.#paint, this.#counter);
    if (event.k === "queue") this.#places = event["places"];
    if (event.k === "counted") this.#counter = event["n"];
    if (event.k === "fault") this.#pending = event["fault"];
    if (event.k === "recovered") this.#pending = undefined;
    if (told) this.say(this.#row({ ...this.#now(), ...told }).trimEnd());
  }

  /** @returns {Row} */
  #now() {
    const holder = this.#places[0];
    return { holder: holder?.owner, fence: holder?.fence, counter: `${this.#counter}`, text: "" };
  }

  /** @param {Row} row */
  #row({ holder, fence, counter, text }) {
    const { worker, dim } = this.#paint;
    const time = `${((now() - this.#started) / 1e6).toFixed(1)}s`.padStart(7);
    const hold = holder === undefined ? dim("-") : worker(holder);
    const queue = this.#waiting(holder);
    return `${dim(time)}    ${hold}    ${`${fence ?? ""}`.padStart(5)}  ${counter.padStart(8)}   ${queue} ${text}`;
  }

  /** The others in etcd's order, the next one first. @param {string | undefined} holder */
  #waiting(holder) {
    const others = this.#places.map(({ owner }) => owner).filter((name) => name !== holder);
    const more = others.length > NAMES_SHOWN ? `+${others.length - NAMES_SHOWN + 1}` : "";
    const names = more === "" ? others : others.slice(0, NAMES_SHOWN - 1);
    const width = 2 * names.length + more.length;
    return (
      names.map((name) => `${this.#paint.worker(name)} `).join("") +
      more +
      " ".repeat(Math.max(0, 13 - width))
    );
  }

  /** The last line of a terminal, which is overwritten repeatedly. */
  #showPresent() {
    const row = this.#now();
    this.#screen.write(
      CLEAR + this.#row({ ...row, text: this.#paint.dim(present(row.holder, this.#pending)) }),
    );
  }
}
