import type { Answered, Asked, Worked } from "../../lab/runner/history.js";
import type { Source } from "./export.js";
import type { Operation } from "./operation.js";

interface KeptMark {
  readonly state: string;
  readonly result?: { readonly json?: { readonly run?: string } };
}

/**
 * The results of strings: what etcd keeps of one, from the call whose work has returned it until its mark expires, and what others are
 * told meanwhile.
 */
export function resultOperations({ facts, times: { at } }: Source): Operation[] {
  const { results } = facts.steps;
  const runs = new Map<string, { readonly work: Worked; readonly value: number }>();
  const asks = new Map<string, Asked>();
  const answers = new Map<string, Answered>();
  for (const step of results) {
    const id = `${step.p}#${step.id}`;
    if (step.slot === "*") continue;
    if (step.k === "worked") runs.set(id, { work: step, value: runs.size + 1 });
    if (step.k === "asked") asks.set(id, step);
    if (step.k === "answered") answers.set(id, step);
  }
  const object = "result";
  const operations: Operation[] = [];
  for (const [id, { p: client, lock, slot, status, value: run = "", t }] of answers) {
    const [found, asked] = [runs.get(run), asks.get(id)];
    if (status !== "done" || !found || !asked) continue;
    const op = `${client}#${found.work.ask}` === id && found.work.p === client ? "keep" : "replay";
    const during = { from: at(asked.t), to: at(t) };
    operations.push({ object, name: `${lock}/${slot}`, op, client, value: found.value, ...during });
  }
  const told = new Set(operations.flatMap(({ op, value }) => (op === "keep" ? [value] : [])));
  for (const { type, key, value: text, tSeen } of facts.marks) {
    const mark = key.includes("//=") && text !== "" ? (JSON.parse(text) as KeptMark) : undefined;
    const run = runs.get(mark?.result?.json?.run ?? "");
    if (mark?.state !== "done" || !run) continue;
    const { work, value } = run;
    const of = { object, name: `${work.lock}/${work.slot}`, value } as const;
    const asked = asks.get(`${work.p}#${work.ask}`);
    if (type === "DELETE")
      operations.push({ ...of, op: "expire", client: "etcd", from: at(tSeen), to: at(tSeen) });
    else if (!told.has(value) && asked)
      // Its caller was told something else, or nothing.
      operations.push({ ...of, op: "keep", client: work.p, from: at(asked.t) });
  }
  return operations;
}
