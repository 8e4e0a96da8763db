import { type AnyCommand, command } from "../command-line/command.js";
import { EXIT, usageError } from "../command-line/exit.js";
import { json } from "../command-line/io.js";
import type { CompletionJson } from "../command-line/json-types.js";
import { write } from "../command-line/output.js";
import { bashScript } from "./bash.js";
import { fishScript } from "./fish.js";
import { wordsOf } from "./words.js";
import { zshScript } from "./zsh.js";

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript };

/** `commands`: all of the program. This command is one of them, so they are known only when it runs. */
export const completion = (commands: () => readonly AnyCommand[]): AnyCommand =>
  command({
    name: "completion",
    args: Object.keys(SCRIPTS).join("|"),
    positionals: [1, 1],
    endsWithOutput: true,
    summary: "print the completion script of a shell",
    help: [
      "Prints the script that completes commands and flags in your shell:",
      "bash: source <(leasehold completion bash) in ~/.bashrc\n" +
        "zsh: source <(leasehold completion zsh) in ~/.zshrc, after compinit\n" +
        "fish: leasehold completion fish | source, in config.fish",
    ],
    flags: {},
    async run({ positionals: [shell = ""], io, json: wantsJson }) {
      if (!isShell(shell))
        throw usageError(`a shell must be bash, zsh or fish, got ${JSON.stringify(shell)}`, "completion");
      const script = SCRIPTS[shell](wordsOf(commands()));
      await write(io, wantsJson ? json({ shell, script } satisfies CompletionJson) : script);
      return EXIT.ok;
    },
  });

const isShell = (shell: string): shell is keyof typeof SCRIPTS => Object.hasOwn(SCRIPTS, shell);
