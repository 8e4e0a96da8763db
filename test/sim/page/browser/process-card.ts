import { make, setAttribute, setText } from "../../../../src/tools/ui/page/dom.js";
import type { HoldView, ProcessView } from "../protocol.js";
import { order } from "./post.js";

const button = (): HTMLButtonElement => make("button", { type: "button" });

/** One process: what it does, its clock, and what can be done to it. */
export class ProcessCard {
  readonly element: HTMLLIElement;
  readonly #name = make("span");
  readonly #state = make("span", { class: "state" });
  readonly #doing = make("p", { class: "doing" });
  readonly #clock = make("p", { class: "soft" });
  readonly #pause = button();
  readonly #kill = button();
  readonly #links: readonly HTMLButtonElement[];
  #view: ProcessView | undefined;
  #shown = "";

  constructor(
    private readonly n: number,
    private readonly members: readonly string[],
  ) {
    this.#links = members.map((_, member) => this.#linkButton(member));
    const acts = make("div", { class: "acts" }, this.#pause, this.#kill, ...this.#links);
    const title = make("h3", {}, this.#name, this.#state);
    this.element = make("li", { class: "process" }, title, this.#doing, this.#clock, acts);
    this.#pause.addEventListener("click", () => this.#act("paused", "pause"));
    this.#kill.addEventListener("click", () => this.#act("dead", "kill"));
  }

  set(view: ProcessView, isWork: boolean): void {
    this.#view = view;
    const { p, state, order: number, offsetMs, driftPercent } = view;
    setAttribute(this.element, "data-state", state);
    setText(this.#name, p);
    setText(this.#state, number === undefined && state !== "alive" ? `${state} by the plan` : state);
    const sign = offsetMs < 0 ? "−" : "+";
    const drift = `${driftPercent < 0 ? "−" : "+"}${Math.abs(driftPercent).toFixed(2)} %`;
    setText(this.#clock, `clock ${sign}${offset(Math.abs(offsetMs))}, ${drift}`);
    this.#showDoing(view);
    this.#showButton(this.#pause, state === "paused" ? "Resume" : "Pause", isWork && state !== "dead");
    this.#showButton(this.#kill, state === "dead" ? "Restart" : "Kill", isWork);
    if (state !== "alive" && number === undefined) this.#pause.disabled = true;
    if (state === "dead" && number === undefined) this.#kill.disabled = true;
    view.links.forEach((link, member) => {
      const at = this.members.length > 1 ? ` ${member + 1}` : "";
      const isCut = link.order !== undefined;
      this.#showButton(this.#links[member]!, `${isCut ? "Heal" : "Cut"} link${at}`, isWork);
      if (!isCut && link.state !== "up") this.#links[member]!.disabled = true;
    });
  }

  #showDoing({ holds, waits, state }: ProcessView): void {
    const shown = JSON.stringify([holds, waits, state]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    if (state === "dead") return this.#doing.replaceChildren();
    const held = holds.map(holdOf);
    const wait = waits.length > 0 ? [make("div", {}, `waits for ${waits.join(", ")}`)] : [];
    const idle = held.length + wait.length === 0 ? [make("div", { class: "soft" }, "idle")] : [];
    this.#doing.replaceChildren(...held, ...wait, ...idle);
  }

  #showButton(element: HTMLButtonElement, text: string, enabled: boolean): void {
    setText(element, text);
    setAttribute(element, "aria-label", `${text} of ${this.#view?.p ?? ""}`.replace(/^(\w+) of /, "$1 "));
    element.disabled = !enabled;
  }

  #act(undone: ProcessView["state"], action: string): void {
    const { state, order: number, p } = this.#view!;
    if (state === undone && number !== undefined) order("heal", number);
    else order(action, p);
  }

  #linkButton(member: number): HTMLButtonElement {
    const element = button();
    element.addEventListener("click", () => {
      const number = this.#view?.links[member]?.order;
      if (number === undefined) order("cut", `${this.n}>${member}`);
      else order("heal", number);
    });
    return element;
  }
}

/** A hold whose key is gone is what fences are for: its process does not know it yet. */
const holdOf = ({ lock, fence, real }: HoldView): HTMLElement =>
  real
    ? make("div", {}, make("b", {}, `holds ${lock}`), ` fence ${fence}`)
    : make(
        "div",
        { class: "gone" },
        make("b", {}, `believes to hold ${lock}`),
        ` fence ${fence}, key deleted`,
      );

const offset = (ms: number): string =>
  ms >= 600_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${(ms / 1000).toFixed(1)} s`;
