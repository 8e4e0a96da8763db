// A process of `leaders-program.js`.
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { owned } from "./owned.js";

const PROGRAM = fileURLToPath(new URL("leaders-program.js", import.meta.url));

/** What the process says of its terms. */
export interface LeadersReport {
  /** How many checks have passed. */
  readonly checks: number;
  readonly states: readonly { readonly held: boolean; readonly fence: string; readonly loss?: string }[];
}

/** A process whose candidates lead. It ends with the test. */
export class Leaders {
  private constructor(
    readonly child: ChildProcess,
    private readonly lines: AsyncIterator<string>,
    readonly first: LeadersReport,
  ) {}

  /** @param lead the options of `lead`; "asks etcd": a check that asks etcd */
  static async start(
    options: object,
    { name, leaders, lead }: { readonly name: string; readonly leaders: number; readonly lead: object },
  ): Promise<Leaders> {
    const args = [PROGRAM, JSON.stringify(options), name, String(leaders), JSON.stringify(lead)];
    const child = owned(spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] }));
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    return new Leaders(child, lines, await next(lines));
  }

  /** See the program. */
  async tell(command: string): Promise<LeadersReport> {
    this.child.stdin?.write(`${command}\n`);
    return next(this.lines);
  }

  /** Asks until `fits`. */
  async until(fits: (report: LeadersReport) => boolean): Promise<LeadersReport> {
    for (;;) {
      const report = await this.tell("look");
      if (fits(report)) return report;
    }
  }
}

async function next(lines: AsyncIterator<string>): Promise<LeadersReport> {
  const { done, value } = (await lines.next()) as IteratorResult<string, undefined>;
  if (done) throw new Error("The program has ended.");
  return JSON.parse(value) as LeadersReport;
}
