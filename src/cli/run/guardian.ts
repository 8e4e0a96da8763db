import { spawn, type ChildProcess } from "node:child_process";
import type { Socket } from "node:net";

/**
 * Reads orders from a pipe whose other end only this process has. `start` precedes the start of the command, with the lease
 * that its environment names. Each further order is a process group and the seconds until it must be gone, and `done` ends
 * the guardian. At the end of the input, and when the seconds have passed without another order, it kills the group. If
 * the input ends right after `start`, the command may be running, or about to: it is found by its environment, as far as
 * the system has /proc. `wait` after `kill` leaves no zombie for each renewal.
 */
const SCRIPT = `
group= lease= alarm= found=
while read -r word left; do
  if [ -n "$alarm" ]; then kill "$alarm"; wait "$alarm"; fi
  [ "$word" != done ] || exit 0
  if [ "$word" = start ]; then lease=$left; continue; fi
  group=$word
  (
    nap=
    trap '[ -z "$nap" ] || kill "$nap"; exit 0' TERM
    sleep "$left" &
    nap=$!
    wait "$nap" && kill -s KILL -- "-$group" || exit 0
    read -r now idle </proc/uptime || now=$(date +%s)
    echo "$now"
  ) </dev/null &
  alarm=$!
done
[ -z "$alarm" ] || kill "$alarm"
[ -z "$group" ] || kill -s KILL -- "-$group"
[ -z "$group" ] && [ -n "$lease" ] || exit 0
for round in 1 2 3 4 5 6 7 8 9 10; do
  for folder in /proc/[0-9]*; do
    grep -qsz "^LEASEHOLD_LEASE=$lease\$" "$folder/environ" || continue
    kill -s KILL -- "-\${folder#/proc/}" && found=1
  done
  [ -z "$found" ] || exit 0
  sleep 0.1
done
`;

/** A process that kills the process group of a command if this one ends, or does not run past the deadline of the lease. */
export class Guardian {
  /**
   * When the guardian has killed the group, because this process did not run when it had to: milliseconds of the clock
   * that counts suspend.
   */
  firedAt: number | undefined;
  readonly #shell: ChildProcess;
  #dismissed = false;

  /**
   * In a session of its own: what ends this process or its group does not end the guardian.
   * @param path where it finds `sleep`, before the usual folders
   * @param onEnd called once if it cannot be started, or ends before it is dismissed
   */
  constructor(path: string | undefined, onEnd: () => void) {
    this.#shell = spawn("/bin/sh", ["-c", SCRIPT], {
      ...{ detached: true, cwd: "/", stdio: ["pipe", "pipe", "ignore"] },
      env: { PATH: `${path ?? ""}:/usr/bin:/bin` },
    });
    const ended = (): void => {
      if (!this.#dismissed) onEnd();
      this.#dismissed = true;
    };
    this.#shell.on("error", ended).on("exit", ended);
    this.#shell.stdin?.on("error", () => {});
    this.#shell.stdout?.on("error", () => {}).on("data", (text) => (this.firedAt = Number(text) * 1000));
  }

  /** A command whose environment has this LEASEHOLD_LEASE is about to be started: it ends with this process, too. */
  expect(lease: string): void {
    this.#order(`start ${lease}`);
  }

  /** The group ends with this process, and in `leftMs`, unless another order follows. */
  watch(group: number, leftMs: number): void {
    this.#order(`${group} ${(leftMs / 1000).toFixed(3)}`);
  }

  /** The group is gone: its number may soon be that of another one. */
  dismiss(): void {
    this.#dismissed = true;
    this.#order("done");
    this.#shell.stdin?.end();
    this.#shell.unref();
    // Its answer may still come, and is not waited for here.
    (this.#shell.stdout as Socket | null)?.unref();
  }

  #order(line: string): void {
    this.#shell.stdin?.write(`${line}\n`);
  }
}
