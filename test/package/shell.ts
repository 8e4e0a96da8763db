// Clean folders, and commands in them.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";

/** A cell cannot run on this machine: it does not count. */
export class NotRun extends Error {}

const run = promisify(execFile);
/** On a machine that does many other things; an installation takes seconds otherwise. */
const LIMIT_MS = 240_000;
const UNREACHABLE = /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|E404|ETARGET|ENETUNREACH/;

const base = await mkdtemp(path.join(os.tmpdir(), "leasehold-package-"));
export const removeFolders = (): Promise<void> => rm(base, { recursive: true, force: true });

/** The environment of a user: nothing of the process that npm or a test runner has started this one with. */
function cleanEnv(more: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) => !/^(npm_|NODE_OPTIONS|LEASEHOLD_|VITEST)/i.test(name),
  );
  return { ...Object.fromEntries(own), npm_config_update_notifier: "false", ...more };
}

/** One project of a user. */
export class Folder {
  private constructor(readonly path: string) {}

  static async create(
    name: string,
    files: Readonly<Record<string, string | Uint8Array>> = {},
  ): Promise<Folder> {
    const folder = new Folder(path.join(base, name));
    await folder.write({ "package.json": `{ "type": "module" }`, ...files });
    return folder;
  }

  within(folder: string): Folder {
    return new Folder(path.join(this.path, folder));
  }

  async write(files: Readonly<Record<string, string | Uint8Array>>): Promise<void> {
    for (const [file, content] of Object.entries(files)) {
      await mkdir(path.dirname(path.join(this.path, file)), { recursive: true });
      await writeFile(path.join(this.path, file), content);
    }
  }

  /** @throws {NotRun} when the registry does not have the packages. */
  async install(...packages: string[]): Promise<void> {
    const flags = ["--prefer-offline", "--no-audit", "--no-fund", "--silent", "--save-exact"];
    try {
      await this.run("npm", ["install", ...flags, ...packages]);
    } catch (error) {
      if (!(error instanceof Error) || !UNREACHABLE.test(error.message)) throw error;
      throw new NotRun(`npm cannot install ${packages.join(" ")}`);
    }
  }

  /** @returns what it printed, on both streams @throws {Error} with that, when its exit code is not 0. */
  async run(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
    const options = { cwd: this.path, env: cleanEnv(env), timeout: LIMIT_MS, maxBuffer: 2 ** 24 };
    try {
      const { stdout, stderr } = await run(command, args, options);
      return `${stdout}${stderr}`;
    } catch (error) {
      const { stdout, stderr, message } = error as { stdout?: string; stderr?: string; message: string };
      throw new Error(`${stdout ?? ""}${stderr ?? ""}`.trim() || message, { cause: error });
    }
  }
}
