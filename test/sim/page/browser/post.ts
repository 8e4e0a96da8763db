import { byId } from "../../../../src/tools/ui/page/dom.js";

let timer: number | undefined;

/** Sends what a control does. A refusal is shown for a while. */
export async function post(path: string, body: object = {}): Promise<void> {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  }).catch(() => undefined);
  if (response?.ok) return show("");
  const text = await response?.text();
  show(text === undefined ? "The server does not answer." : (JSON.parse(text) as { error: string }).error);
}

function show(text: string): void {
  const refusal = byId("refusal");
  clearTimeout(timer);
  refusal.textContent = text;
  refusal.hidden = text === "";
  if (text !== "") timer = window.setTimeout(() => (refusal.hidden = true), 8000);
}

export const order = (action: string, target: string | number): void =>
  void post("/order", { order: `${action} ${target}` });
