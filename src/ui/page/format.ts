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
