export type SortKey = "waiters" | "held" | "rate";

/** What the user has chosen to see. */
export interface View {
  readonly sort: SortKey;
  /** Undefined: the first one, whichever that is. */
  readonly selected: string | undefined;
  /** Names that contain it are shown, in upper or lower case. */
  readonly filter: string;
  /** The filter is being typed: letters are part of it. */
  readonly isTyping: boolean;
  /** The name whose queue is shown instead of the table. */
  readonly open: string | undefined;
  /** First line of that queue. */
  readonly scroll: number;
}

export const FIRST_VIEW: View = {
  sort: "waiters",
  selected: undefined,
  filter: "",
  isTyping: false,
  open: undefined,
  scroll: 0,
};

/** A key that was pressed, as Node's keypress events name it. */
export interface Key {
  readonly name?: string | undefined;
  readonly ctrl?: boolean | undefined;
  readonly meta?: boolean | undefined;
  /** What it writes. */
  readonly text?: string | undefined;
}

/** What a key can refer to. */
export interface Shown {
  /** The rows of the table, as they are sorted. */
  readonly names: readonly string[];
  /** Rows of a page. */
  readonly height: number;
  /** Lines of the open queue. */
  readonly length: number;
}

const SORTS: Readonly<Record<string, SortKey>> = { w: "waiters", h: "held", r: "rate" };

/** What is to be seen after a key, or the end of the program. */
export function press(view: View, key: Key, shown: Shown): View | "quit" {
  if (key.ctrl) return view;
  if (view.isTyping) return typed(view, key);
  if (key.text === "q") return "quit";
  const step = stepOf(key, shown.height);
  if (view.open !== undefined) return inQueue(view, key, { step, shown });
  if (step !== undefined) return { ...view, selected: moved(view, step, shown.names) };
  if (isEnter(key)) return { ...view, open: selectedOf(view, shown.names), scroll: 0 };
  if (key.text === "/") return { ...view, isTyping: true };
  if (key.name === "escape") return { ...view, filter: "", selected: undefined };
  return { ...view, sort: SORTS[key.text ?? ""] ?? view.sort };
}

/** The selected name is in the table, or else the first one is selected. */
export const selectedOf = ({ selected }: View, names: readonly string[]): string | undefined =>
  selected !== undefined && names.includes(selected) ? selected : names[0];

const isEnter = ({ name }: Key): boolean => name === "return" || name === "enter";

function typed(view: View, key: Key): View {
  if (isEnter(key)) return { ...view, isTyping: false };
  if (key.name === "escape") return { ...view, isTyping: false, filter: "" };
  if (key.name === "backspace") return { ...view, filter: [...view.filter].slice(0, -1).join("") };
  const isText = key.text !== undefined && !key.meta && /^[^\p{Cc}]+$/u.test(key.text);
  return isText ? { ...view, filter: (view.filter + key.text).slice(0, 200) } : view;
}

function inQueue(
  view: View,
  key: Key,
  { step, shown }: { readonly step: number | undefined; readonly shown: Shown },
): View {
  if (isEnter(key) || key.name === "escape" || key.name === "backspace") return { ...view, open: undefined };
  if (step === undefined) return view;
  const last = Math.max(0, shown.length - shown.height);
  return { ...view, scroll: Math.min(Math.max(0, view.scroll + step), last) };
}

function stepOf({ name, text }: Key, height: number): number | undefined {
  const page = Math.max(1, height - 1);
  const steps: Readonly<Record<string, number>> = {
    ...{ up: -1, down: 1, k: -1, j: 1, pageup: -page, pagedown: page, home: -Infinity, end: Infinity },
  };
  return steps[name ?? ""] ?? steps[text ?? ""];
}

function moved(view: View, step: number, names: readonly string[]): string | undefined {
  const at = names.indexOf(selectedOf(view, names) ?? "");
  return names[Math.min(Math.max(0, at + step), names.length - 1)];
}
