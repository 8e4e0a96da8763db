import { byId, make, shown } from "../../../../src/tools/ui/page/dom.js";
import type { StoryLine } from "../protocol.js";

const MOST = 400;

/** What happened, the newest on top. */
export class StoryList {
  readonly #list = byId("story");

  constructor() {
    const minor = byId<HTMLInputElement>("minor");
    const show = (): void => void this.#list.classList.toggle("few", !minor.checked);
    minor.addEventListener("change", show);
    show();
  }

  clear(): void {
    this.#list.replaceChildren();
  }

  add(lines: readonly StoryLine[]): void {
    const made = lines
      .slice(-MOST)
      .map(({ ms, text, tone }) =>
        make(
          "li",
          { "data-tone": tone },
          make("time", {}, `${(ms / 1000).toFixed(3)} s`),
          make("span", {}, shown(text)),
        ),
      );
    this.#list.prepend(...made.reverse());
    while (this.#list.childElementCount > MOST) this.#list.lastElementChild!.remove();
  }
}
