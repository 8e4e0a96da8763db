import { printable } from "../../../base/util/printable.js";

/** The element of `index.html` with this id. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`index.html has no #${id}`);
  return found as T;
}

type Child = Node | string;

/** A new element. Texts become text nodes: what other clients have written is never markup. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>> = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** The same in a picture. */
export function draw(
  tag: string,
  attributes: Readonly<Record<string, string | number>>,
  text = "",
): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.textContent = text;
  return element;
}

/** Writes only what differs: an equal text would still be a change for the browser and for screen readers. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** The same for an attribute. */
export function setAttribute(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Characters that reorder or hide a text become visible. */
export const shown = (text: string): string => printable(text, 300);

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Such as "7 s", "3 min 5 s", "2 h 10 min", "4 d 3 h". */
export function duration(ms: number): string {
  const all = Math.max(0, ms);
  if (all < MINUTE) return `${Math.floor(all / SECOND)} s`;
  if (all < HOUR) return pair([Math.floor(all / MINUTE), "min"], [Math.floor((all % MINUTE) / SECOND), "s"]);
  if (all < DAY) return pair([Math.floor(all / HOUR), "h"], [Math.floor((all % HOUR) / MINUTE), "min"]);
  return pair([Math.floor(all / DAY), "d"], [Math.floor((all % DAY) / HOUR), "h"]);
}

type Part = readonly [amount: number, unit: string];

const pair = ([many, unit]: Part, [few, smaller]: Part): string =>
  few === 0 ? `${many} ${unit}` : `${many} ${unit} ${few} ${smaller}`;

export const count = (n: number, one: string, many = `${one}s`): string =>
  `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;

export const number = (n: number): string => n.toLocaleString("en-US");

/** In the time zone of the viewer. */
export const timeOfDay = (ms: number): string =>
  new Date(ms).toLocaleTimeString(undefined, { hour12: false });

export const kindOf = (kind: string): string => (kind === "unknown" ? "other" : kind);

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
