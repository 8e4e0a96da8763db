// One process that uses a subject. It reads commands as lines of JSON from standard input and writes events as lines of
// JSON to standard output, each with a timestamp. `go/main.go` is the equivalent in Go.
import "../../support/programs/shift-date.js";
import { createInterface } from "node:readline";
import type { Held } from "./adapter.js";
import { TimeUpError } from "./adapter.js";
import { StallClock } from "./stall-clock.js";
import { adapters, type AdapterName } from "./subjects/adapters.js";

/** The first argument, as JSON. */
export interface Task {
  readonly adapter: AdapterName;
  readonly addresses: readonly string[];
  readonly ttlSeconds: number;
}

export type Command =
  | { do: "acquire"; id: number; name: string; timeoutMs: number }
  | { do: "claim"; id: number }
  | { do: "release"; id: number }
  | { do: "shift"; ms: number }
  | { do: "block"; ms: number }
  | { do: "close" };

const cell = new Int32Array(new SharedArrayBuffer(4));
const now = () => String(process.hrtime.bigint());
const tell = (line: object) => process.stdout.write(`${JSON.stringify({ t: now(), ...line })}\n`);

for (const event of ["uncaughtException", "unhandledRejection"])
  process.on(event, (error: Error) => {
    tell({ k: "crash", err: `${event}: ${error?.message ?? String(error)}` });
    process.exit(71);
  });

const task = JSON.parse(process.argv[2] ?? "") as Task;
const connect = await adapters[task.adapter]();
const client = connect(task);
const holds = new Map<number, { held: Held; lost: boolean }>();

async function acquire(id: number, name: string, timeoutMs: number): Promise<void> {
  try {
    const held = await client.acquire(name, { timeoutMs });
    // The time is read first: a process that is stopped between the two must not seem to hold from a later time on.
    const t = now();
    const hold = { held, lost: false };
    holds.set(id, hold);
    tell({ k: "granted", t, id, ...(held.token !== undefined && { token: String(held.token) }) });
    held.onLost?.(() => {
      hold.lost = true;
      tell({ k: "lost", id });
    });
  } catch (error) {
    tell({ k: "refused", id, timeUp: error instanceof TimeUpError, err: describe(error) });
  }
}

function claim(id: number): void {
  const t = now();
  const hold = holds.get(id);
  const held = hold !== undefined && (hold.held.held?.() ?? !hold.lost);
  tell({ k: "claim", t, id, held });
}

async function release(id: number): Promise<void> {
  const hold = holds.get(id);
  holds.delete(id);
  tell({ k: "release", id });
  try {
    await hold?.held.release();
    tell({ k: "released", id });
  } catch (error) {
    tell({ k: "unreleased", id, err: describe(error) });
  }
}

async function close(): Promise<void> {
  try {
    await client.close();
    tell({ k: "closed" });
  } catch (error) {
    tell({ k: "closed", err: describe(error) });
  }
}

function obey(command: Command): void {
  switch (command.do) {
    case "acquire":
      return void acquire(command.id, command.name, command.timeoutMs);
    case "claim":
      return claim(command.id);
    case "release":
      return void release(command.id);
    case "shift":
      return (globalThis as unknown as { shiftDate(ms: number): void }).shiftDate(command.ms);
    case "block":
      return void Atomics.wait(cell, 0, 0, command.ms);
    case "close":
      return void close();
  }
}

function describe(error: unknown): string {
  const { name, message } = error as Error;
  return `${name}: ${message}`.split("\n", 1)[0] ?? "";
}

new StallClock((ms) => tell({ k: "stall", ms }));
tell({ k: "ready" });
for await (const line of createInterface({ input: process.stdin })) obey(JSON.parse(line) as Command);
// The process that sends the commands has ended.
process.exit(70);
