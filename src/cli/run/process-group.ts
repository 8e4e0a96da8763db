import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { CliError, EXIT } from "../command-line/exit.js";
import { hasOnlyZombies } from "./zombies.js";

/** The command and all that it has started, except what has left its process group. */
export class ProcessGroup {
  /** The exit code as shells have it. Rejects with a CliError if the command could not be started. */
  readonly ended: Promise<number>;
  readonly pid: number | undefined;

  /** @param started called at once, before anything else can happen in this process */
  constructor(
    [file = "", ...args]: readonly string[],
    env: NodeJS.ProcessEnv,
    started: (pid: number) => void,
  ) {
    try {
      const child = spawn(file, args, { detached: true, stdio: "inherit", env });
      this.pid = child.pid;
      if (child.pid !== undefined) started(child.pid);
      this.ended = endOf(child, file);
    } catch (error) {
      this.ended = Promise.reject(startError(file, error as NodeJS.ErrnoException));
    }
    // Whoever awaits it gets the rejection; a command that fails to start is awaited a moment later.
    this.ended.catch(() => {});
  }

  /** Whether a process of the group still runs. */
  get alive(): boolean {
    return this.pid !== undefined && send(this.pid, 0) !== "gone" && !hasOnlyZombies(this.pid);
  }

  /** Returns false if every process of the group belongs to another user, as with `sudo`, and the signal was not sent. */
  signal(name: NodeJS.Signals): boolean {
    return this.pid === undefined || send(this.pid, name) !== "denied";
  }
}

async function endOf(child: ChildProcess, file: string): Promise<number> {
  if (child.pid === undefined) {
    const [error] = (await once(child, "error")) as [NodeJS.ErrnoException];
    throw startError(file, error);
  }
  child.on("error", () => {});
  const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
  return code ?? EXIT.signal + os.constants.signals[signal ?? "SIGKILL"];
}

function startError(file: string, { code, message }: NodeJS.ErrnoException): CliError {
  // Node.js refuses an empty name before the system could say that there is no such file.
  if (code === "ENOENT" || file === "")
    return new CliError(EXIT.notFound, `${file === "" ? "''" : file}: command not found`);
  const why = code === "EACCES" ? "permission denied, or not a program" : message;
  return new CliError(EXIT.notExecutable, `${file}: ${why}`);
}

function send(group: number, signal: NodeJS.Signals | 0): "sent" | "denied" | "gone" {
  try {
    process.kill(-group, signal);
    return "sent";
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM" ? "denied" : "gone";
  }
}
