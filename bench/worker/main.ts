// One process of contenders that uses a client for Node.js. See protocol.ts.
import { monitorEventLoopDelay } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { adapters, type AdapterName } from "../peers/adapters.js";
import type { BareKey, Client, Session } from "../peers/client.js";
import { Cycles } from "./cycles.js";
import type { Answer, At, Command, Connection, Look, Start, StepName, Stopped, Task } from "./protocol.js";
import { Pairs } from "./pairs.js";
import { Requests } from "./requests.js";

/** The resolution of the histogram of event-loop delays, which includes it. */
const TICK_MS = 10;

// tsx enables source maps, which would make every error that a client creates more expensive than in a user's program.
process.setSourceMapsEnabled(false);

const { adapter, build } = JSON.parse(process.argv[2] ?? "") as Start;
const connect = await adapters[adapter as AdapterName]();
const turns = monitorEventLoopDelay({ resolution: TICK_MS });

let where: Connection;
let client: Client;
let sessions: readonly Session[] = [];
let running: Cycles | Pairs | Requests | undefined;

async function open(connection: Connection): Promise<true> {
  where = connection;
  client = await connect({ ...connection, build });
  sessions = await Promise.all(Array.from({ length: connection.sessions }, () => client.session()));
  return true;
}

async function start(task: Task): Promise<true> {
  // Its timer would add to the cost that is measured of idle processes.
  if ("contenders" in task && task.stalls) turns.enable();
  running = await runningOf(task);
  return true;
}

async function runningOf(task: Task): Promise<Cycles | Pairs | Requests> {
  if ("contenders" in task) return new Cycles(sessions, task);
  if (task.kind === "pairs") return new Pairs((sessions[0] as Session).lockable(task.name));
  return Requests.start(await bareKeyOf(task.name), task);
}

/** Loaded on demand: etcd3 would be in the memory of the other peers. */
async function bareKeyOf(name: string): Promise<BareKey> {
  const { addresses } = where;
  if (adapter === "bare-http2")
    return (await import("../peers/bare-http2.js")).bareKey({ addresses, build }, name);
  return (await import("../peers/bare.js")).bareKey(addresses, name);
}

function look(collect: boolean | undefined): Look {
  if (collect) globalThis.gc?.();
  const { user, system } = process.cpuUsage();
  const stallMs = Math.max(0, turns.max / 1e6 - TICK_MS);
  turns.reset();
  const { heapUsed: heapBytes } = process.memoryUsage();
  return { cpuMicros: user + system, granted: running?.granted ?? 0, heapBytes, stallMs };
}

async function stop(): Promise<Stopped> {
  turns.disable();
  const closeSessions = async () => void (await Promise.all(sessions.map((session) => session.close())));
  await (running?.stop(closeSessions) ?? closeSessions());
  await client.close();
  const { journal = [] } = running ?? {};
  running = undefined;
  return { journal };
}

/** Loaded on demand, for the same reason. */
async function timeStep(step: StepName, at: At): Promise<number | null> {
  const { etcd3Steps, leaseholdSteps } = await import("./steps.js");
  const steps = adapter === "etcd3" ? etcd3Steps() : await leaseholdSteps(build);
  return (await steps[step]?.(at)) ?? null;
}

function obey(command: Command): Promise<unknown> | Look {
  switch (command.do) {
    case "step":
      return timeStep(command.step, command.at);
    case "open":
      return open(command.connection);
    case "start":
      return start(command.task);
    case "look":
      return look(command.collect);
    case "stop":
      return stop();
  }
}

const tell = (answer: Answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);

tell({ ok: true });
for await (const line of createInterface({ input: process.stdin }))
  try {
    tell({ ok: await obey(JSON.parse(line) as Command) });
  } catch (error) {
    const { name, message } = error as Error;
    tell({ error: `${name}: ${message}` });
  }
// The process that sends the orders has ended, or needs this one no longer.
process.exit();
