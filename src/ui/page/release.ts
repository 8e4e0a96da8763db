import { RELEASE_HEADER, type Person, type ReleaseRequest } from "../protocol.js";
import { byId, setText, shown } from "./dom.js";

let wanted: ReleaseRequest | undefined;

/** Asks the viewer, then the server. */
export function askRelease(
  name: string,
  { key, owner, revision }: Person,
  state: "holds" | "waits for",
): void {
  wanted = { name, key, revision };
  const risk =
    state === "holds"
      ? "The next waiter gets it at once. A holder that is still at work learns of it, perhaps too late: check that it has ended, or that what it writes is fenced."
      : "It loses its place in the queue. A waiter of leasehold joins again, at the end.";
  setText(byId("confirm-text"), `${shown(owner ?? key)} ${state} ${shown(name)}.\n${risk}`);
  byId("confirm-result").hidden = true;
  byId<HTMLButtonElement>("force").disabled = false;
  byId<HTMLDialogElement>("confirm").showModal();
  byId("cancel").focus();
}

async function send(request: ReleaseRequest): Promise<string | undefined> {
  try {
    const { ok, status, text } = await post(request);
    return ok ? undefined : `${text.trim()} (${status})`;
  } catch {
    return "The server does not answer.";
  }
}

async function post(
  request: ReleaseRequest,
): Promise<{ readonly ok: boolean; readonly status: number; readonly text: string }> {
  const answer = await fetch("release", {
    method: "POST",
    headers: { "content-type": "application/json", [RELEASE_HEADER]: "1" },
    body: JSON.stringify(request),
  });
  return { ok: answer.ok, status: answer.status, text: await answer.text() };
}

async function force(): Promise<void> {
  if (wanted === undefined) return;
  const button = byId<HTMLButtonElement>("force");
  button.disabled = true;
  const failure = await send(wanted);
  button.disabled = false;
  if (failure === undefined) return byId<HTMLDialogElement>("confirm").close();
  const result = byId("confirm-result");
  result.hidden = false;
  setText(result, failure);
}

export const listenForRelease = (): void => byId("force").addEventListener("click", () => void force());
