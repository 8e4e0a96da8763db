import { didYouMean, suggestions } from "../../base/options/check.js";
import type { AnyCommand } from "./command.js";
import { usageError } from "./io.js";

/** In the order of the help. Only what is asked for is loaded: `run` needs no server, and `show` none that ends processes. */
const COMMANDS: Readonly<Record<string, () => Promise<AnyCommand>>> = {
  run: async () => (await import("./run/run.js")).run,
  lead: async () => (await import("./run/lead.js")).lead,
  ls: async () => (await import("./queues.js")).ls,
  show: async () => (await import("./queues.js")).show,
  release: async () => (await import("./queues.js")).release,
  leader: async () => (await import("./leader.js")).leader,
  observe: async () => (await import("./leader.js")).observe,
  candidates: async () => (await import("./leader.js")).candidates,
  members: async () => (await import("./groups.js")).members,
  shards: async () => (await import("./groups.js")).shards,
  once: async () => (await import("./once.js")).once,
  top: async () => (await import("./top/top.js")).top,
  doctor: async () => (await import("./doctor/doctor.js")).doctor,
  ui: async () => (await import("./ui.js")).ui,
  dev: async () => (await import("./dev.js")).dev,
  demo: async () => (await import("./demo.js")).demo,
  completion: async () => (await import("./completion.js")).completion(allCommands),
};

/** What calls of the library are called here. */
const CALLS = new Map([
  ["list", "ls"],
  ["inspect", "show"],
]);

export const isCommandName = (name: string): boolean => Object.hasOwn(COMMANDS, name);

/** @throws {CliError} if there is no command of this name. */
export async function commandOf(name: string): Promise<AnyCommand> {
  const load = isCommandName(name) ? COMMANDS[name] : undefined;
  if (load) return load();
  const same = CALLS.get(name);
  const near = same === undefined ? suggestions(name, Object.keys(COMMANDS)) : [same];
  throw usageError(`there is no command ${JSON.stringify(name)}${didYouMean(near)}`);
}

export const allCommands = (): Promise<readonly AnyCommand[]> =>
  Promise.all(Object.values(COMMANDS).map((load) => load()));
