import { Client } from "./client.js";
import { type Program, type Step, textOf } from "./steps.js";
import type { AuthSubject } from "./subject.js";

/** Until all events have arrived. */
const REST_MS = 500;
export const CLIENTS = 6;

/** Runs a program. Returns the answer of each step, and the events of the watches. */
export async function play(program: Program, subject: AuthSubject): Promise<readonly string[]> {
  const clients = Array.from({ length: CLIENTS }, () => new Client(subject));
  const answers: string[] = [];
  for (const step of program) answers.push(await run(step, clients, subject));
  await subject.elapse(REST_MS);
  for (const [n, { events }] of clients.entries())
    for (const [id, lines] of [...events].sort(([a], [b]) => a - b))
      answers.push(`client ${n} watch ${id}: ${lines.join(", ")}`);
  for (const client of clients) client.close();
  return answers;
}

async function run(step: Step, clients: readonly Client[], subject: AuthSubject): Promise<string> {
  switch (step.kind) {
    case "edit":
      return subject.edit(step.edit);
    case "elapse":
      await subject.elapse(step.ms);
      return "-";
    case "ask":
      return clients[step.client]!.ask(step.ask);
    case "login":
      return clients[step.client]!.login(step.user, step.password);
    case "reopen":
      clients[step.client]!.leaveStreams();
      return "-";
    case "logout":
    case "forge":
      clients[step.client]!.token = step.kind === "forge" ? "forged.1" : undefined;
      return "-";
  }
}

/** The first difference, with the steps before it; `undefined`: none. */
export function difference(
  program: Program,
  real: readonly string[],
  simulated: readonly string[],
): string | undefined {
  const most = Math.max(real.length, simulated.length);
  for (let n = 0; n < most; n++) {
    if (real[n] === simulated[n]) continue;
    const before = program.slice(Math.max(0, n - 12), n + 1).map((step, i) => `${i} ${textOf(step)}`);
    return [...before, `step ${n}`, `real:      ${real[n]}`, `simulated: ${simulated[n]}`].join("\n");
  }
  return undefined;
}
