import { spawn, type ChildProcess } from "node:child_process";

/**
 * Reads orders from a pipe whose other end only this process has. The first is the process group, each further one the
 * seconds until the group must be gone, and "done" ends the guardian. At the end of the input, and when the seconds have
 * passed without another order, it kills the group. `wait` after `kill` leaves no zombie for each renewal.
 */
const SCRIPT = `
read -r group || exit 0
alarm=
while read -r order; do
  if [ -n "$alarm" ]; then kill "$alarm"; wait "$alarm"; fi
  [ "$order" != done ] || exit 0
  (
    nap=
    trap '[ -z "$nap" ] || kill "$nap"; exit 0' TERM
    sleep "$order" &
    nap=$!
    wait "$nap" && kill -s KILL -- "-$group" && echo killed
  ) </dev/null &
  alarm=$!
done
[ -z "$alarm" ] || kill "$alarm"
kill -s KILL -- "-$group"
`;

/** A process that kills the process group of a command if this one ends, or does not run past the deadline of the lease. */
export class Guardian {
  /** The guardian has killed the group: this process did not run when it had to. */
  fired = false;
  readonly #shell: ChildProcess;

  /** In a session of its own: what ends this process or its group does not end the guardian. */
  constructor() {
    this.#shell = spawn("/bin/sh", ["-c", SCRIPT], {
      ...{ detached: true, cwd: "/", stdio: ["pipe", "pipe", "ignore"] },
      env: { PATH: process.env["PATH"] ?? "/usr/bin:/bin" },
    });
    this.#shell.on("error", () => {});
    this.#shell.stdin?.on("error", () => {});
    this.#shell.stdout?.on("error", () => {}).on("data", () => (this.fired = true));
  }

  /** From now on the group ends with this process. */
  watch(group: number): void {
    this.#order(String(group));
  }

  /** The group must be gone in `leftMs`, unless another order follows. */
  deadlineIn(leftMs: number): void {
    this.#order((leftMs / 1000).toFixed(3));
  }

  /** The group is gone: its number may soon be that of another one. */
  dismiss(): void {
    this.#order("done");
    this.#shell.stdin?.end();
    this.#shell.stdout?.destroy();
    this.#shell.unref();
  }

  #order(line: string): void {
    this.#shell.stdin?.write(`${line}\n`);
  }
}
