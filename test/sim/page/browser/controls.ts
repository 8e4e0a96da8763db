import { byId, count, make, setAttribute, setText } from "../../../../src/tools/ui/page/dom.js";
import type { Affliction, Frame } from "../protocol.js";
import { order, post } from "./post.js";

/** Pause, steps, speed, and what is broken by hand. */
export class Controls {
  readonly #play = byId<HTMLButtonElement>("play");
  readonly #speed = byId<HTMLSelectElement>("speed");
  readonly #quiet = byId<HTMLInputElement>("quiet");
  #playing = false;
  #afflictions = "";

  constructor() {
    this.#play.addEventListener("click", () => this.#toggle());
    byId("step").addEventListener("click", () => void post("/step"));
    byId("next").addEventListener("click", () => void post("/next"));
    for (const control of [this.#speed, this.#quiet])
      control.addEventListener("change", () => {
        void post("/speed", { speed: Number(this.#speed.value), skipsQuiet: this.#quiet.checked });
      });
    addEventListener("keydown", (event) => this.#key(event));
  }

  set(frame: Frame): void {
    const { playing, speed, skipsQuiet, phase, events, calls } = frame;
    this.#playing = playing;
    setText(this.#play, playing ? "Pause" : "Play");
    if (document.activeElement !== this.#speed && this.#speed.value !== String(speed))
      this.#speed.value = String(speed);
    this.#quiet.checked = skipsQuiet;
    const over = phase === "over" || phase === "failed";
    for (const id of ["play", "step", "next"]) byId<HTMLButtonElement>(id).disabled = over;
    for (const button of byId("faults").querySelectorAll("button")) button.disabled = phase !== "work";
    setText(byId("counts"), `${count(events, "event")}, ${count(calls, "call")}, ${PHASES[phase]}`);
    this.#showVerdict(frame);
    this.#showAfflictions(frame.afflictions);
  }

  #showVerdict({ broken, judged, phase, problem, hash }: Frame): void {
    const verdict = byId("verdict");
    setAttribute(verdict, "data-broken", broken.length > 0 || phase === "failed" ? "yes" : "no");
    const more = broken.length > 3 ? `\nand ${broken.length - 3} more` : "";
    const sentences = broken.slice(0, 3).map(({ label, text }) => `${label} is broken: ${text}`);
    const fine = judged
      ? `The run is over: every invariant holds. Hash ${hash}.`
      : "No invariant is broken so far.";
    setText(verdict, problem || (broken.length > 0 ? sentences.join("\n") + more : fine));
  }

  #showAfflictions(afflictions: readonly Affliction[]): void {
    const shown = JSON.stringify(afflictions);
    if (shown === this.#afflictions) return;
    this.#afflictions = shown;
    byId("afflictions").replaceChildren(
      ...afflictions.map(({ order: number, text }) => {
        const heal = make("button", { type: "button", "aria-label": `Heal ${text}` }, "Heal");
        heal.addEventListener("click", () => order("heal", number));
        return make("li", {}, text, heal);
      }),
    );
  }

  #toggle(): void {
    void post(this.#playing ? "/pause" : "/play");
  }

  #key(event: KeyboardEvent): void {
    const { target, key, ctrlKey, altKey, metaKey } = event;
    const typing = target instanceof HTMLInputElement || target instanceof HTMLSelectElement;
    if (typing || ctrlKey || altKey || metaKey) return;
    const isPressed =
      target instanceof HTMLButtonElement || (target instanceof HTMLElement && target.tagName === "SUMMARY");
    if (key === " " && !isPressed) {
      event.preventDefault();
      this.#toggle();
    }
    if (key === "s") void post("/step");
    if (key === "n") void post("/next");
  }
}

const PHASES: Record<Frame["phase"], string> = {
  work: "working",
  settle: "coming to rest",
  over: "over",
  failed: "failed",
};
