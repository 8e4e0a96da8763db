import { byId } from "./dom.js";

/** A screen reader needs time to speak. */
const EVERY_MS = 4000;

let next: string | undefined;
let timer: number | undefined;

/** Tells screen readers, at most once in a while: of several texts, the latest one. */
export function announce(text: string): void {
  next = text;
  if (timer !== undefined) return;
  const speak = (): void => {
    timer = undefined;
    if (next === undefined) return;
    byId("announce").textContent = next;
    next = undefined;
    timer = window.setTimeout(speak, EVERY_MS);
  };
  speak();
}
