// The completion scripts of bash, zsh and fish. They are generated from the table of commands and their flags when the
// command runs: they have what this version of the program parses. A script starts no program and connects to nothing while
// the user types. `wordsOf` decides what can be completed; the rest only writes it in the language of each shell.
import os from "node:os";
import { COMMON_FLAGS } from "./arguments.js";
import { type AnyCommand, command, type Flags } from "./command.js";
import { EXIT, json, usageError, write } from "./io.js";
import type { CompletionJson } from "./json-types.js";

/** A flag, as a shell completes it. */
interface WordFlag {
  readonly name: string;
  readonly short: string | undefined;
  readonly text: string;
  /** What follows it: nothing, a file, one of some words, or a text that cannot be completed. */
  readonly value: "none" | "file" | "text" | readonly string[];
}

/** A command, as a shell completes it. */
interface WordCommand {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly WordFlag[];
  /** What its first word may be; empty if that cannot be known without a connection. */
  readonly words: readonly string[];
  /** Whether a command to run follows `--`. */
  readonly takesCommand: boolean;
}

/** From the definitions that the program itself parses, so that both always agree. */
export const wordsOf = (commands: readonly AnyCommand[]): WordCommand[] =>
  commands.map(({ name, summary, args, flags, takesCommand = false }) => ({
    name,
    summary,
    takesCommand,
    words: choicesIn(args),
    flags: flagsOf({ ...flags, ...COMMON_FLAGS }),
  }));

const flagsOf = (flags: Flags): WordFlag[] =>
  Object.entries(flags).map(([name, { short, text, value }]) => ({
    name,
    short,
    text,
    value: kindOf(value),
  }));

function kindOf(placeholder: string | undefined): WordFlag["value"] {
  if (placeholder === undefined) return "none";
  if (placeholder === "FILE") return "file";
  if (placeholder === "SIGNAL") return Object.keys(os.constants.signals);
  const choices = choicesIn(placeholder);
  return choices.length > 0 ? choices : "text";
}

/** `bash|zsh|fish` is a choice of words; a placeholder has capitals. */
const choicesIn = (text: string): string[] => (/^[a-z-]+(\|[a-z-]+)+$/.test(text) ? text.split("|") : []);

/** What else may follow the name of the program. */
const FIRST_FLAGS = ["--help", "--version"];

/** For bash 3.2, which macOS has, and later. */
export const bashScript = (commands: readonly WordCommand[]): string => `\
# bash completion of leasehold: source <(leasehold completion bash)
_leasehold() {
  local IFS=$' \\t\\n'
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="" flags="" words="" i
  COMPREPLY=()
  if ((COMP_CWORD <= 1)); then
    COMPREPLY=($(compgen -W "${[...commands.map(({ name }) => name), ...FIRST_FLAGS].join(" ")}" -- "$cur"))
    return
  fi
${PREVIOUS}${bashBehindDashes(commands)}  case "\${COMP_WORDS[1]} $prev" in
${commands.flatMap(valueCases).join("\n")}
  esac
  case "\${COMP_WORDS[1]}" in
${commands.map(bashCase).join("\n")}
  esac
  [[ "$cur" == -* ]] && words="$flags"
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
${BASH_HELPERS}complete -F _leasehold leasehold
`;

const PREVIOUS = `\
  prev="\${COMP_WORDS[COMP_CWORD - 1]}"
  # bash splits --flag=value into three words.
  if [[ "$prev" == "=" ]]; then
    prev="\${COMP_WORDS[COMP_CWORD - 2]}"
  elif [[ "$cur" == "=" ]]; then
    cur=""
  fi
`;

const bashBehindDashes = (commands: readonly WordCommand[]): string => `\
  for ((i = 2; i < COMP_CWORD; i++)); do
    [[ "\${COMP_WORDS[i]}" == "--" ]] || continue
    case "\${COMP_WORDS[1]}" in
      ${namesOf(commands.filter(({ takesCommand }) => takesCommand))}) _leasehold_command "$((i + 1))" ;;
    esac
    return
  done
`;

/** The command behind `--` and its files; a file. */
const BASH_HELPERS = `\
_leasehold_command() {
  local IFS=$'\\n'
  ((COMP_CWORD == $1)) || { _leasehold_files; return; }
  COMPREPLY=($(compgen -c -- "$cur"))
}
_leasehold_files() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -f -- "$cur"))
  compopt -o filenames 2>/dev/null
}
`;

/** A pattern of case; one that no word matches, if there is no name. */
const namesOf = (commands: readonly WordCommand[]): string =>
  commands.length > 0 ? commands.map(({ name }) => name).join(" | ") : '""';

const bashCase = ({ name, flags, words }: WordCommand): string =>
  `    ${name}) flags="${flags.flatMap(spellings).join(" ")}" words="${words.join(" ")}" ;;`;

const valueCases = ({ name, flags }: WordCommand): string[] =>
  flags.flatMap(({ value, ...flag }) => {
    const patterns = spellings(flag)
      .map((spelling) => `"${name} ${spelling}"`)
      .join(" | ");
    if (value === "none") return [];
    if (value === "file") return [`    ${patterns}) _leasehold_files; return ;;`];
    const reply = value === "text" ? "" : `COMPREPLY=($(compgen -W "${value.join(" ")}" -- "$cur")); `;
    return [`    ${patterns}) ${reply}return ;;`];
  });

const spellings = ({ name, short }: Pick<WordFlag, "name" | "short">): string[] => [
  `--${name}`,
  ...(short === undefined ? [] : [`-${short}`]),
];

export const zshScript = (commands: readonly WordCommand[]): string => `\
#compdef leasehold
# zsh completion of leasehold: source <(leasehold completion zsh), or a file _leasehold in a folder of fpath
_leasehold() {
  local -a known
  known=(
${commands.map(({ name, summary }) => `    ${zshQuote(`${name}:${summary}`)}`).join("\n")}
  )
  if ((CURRENT == 2)); then
    _describe -t commands command known
    _arguments '--help[show the commands]' '--version[print the version]'
    return
  fi
  local chosen=$words[2]
${zshBehindDashes(commands)}  shift words
  ((CURRENT--))
  case $chosen in
${commands.map(zshCase).join("\n")}
  esac
}
${REGISTER}`;

/** The command to run, as if it were alone. */
const zshBehindDashes = (commands: readonly WordCommand[]): string => `\
  local dashes=\${words[(i)--]}
  if ((dashes < CURRENT)); then
    shift $dashes words
    ((CURRENT -= dashes))
    [[ " ${commands.flatMap(({ name, takesCommand }) => (takesCommand ? [name] : [])).join(" ")} " == *" $chosen "* ]] && _normal
    return
  fi
`;

/** A file of fpath is called as the function itself; a sourced script registers the function. */
const REGISTER = `\
if [ "$funcstack[1]" = "_leasehold" ]; then
  _leasehold "$@"
else
  compdef _leasehold leasehold
fi
`;

function zshCase({ name, flags, words }: WordCommand): string {
  const specs = [
    ...flags.map(flagSpec),
    ...(words.length > 0 ? [zshQuote(`1:word:(${words.join(" ")})`)] : []),
  ];
  return `    ${name}) _arguments -s \\\n      ${specs.join(" \\\n      ")} ;;`;
}

function flagSpec({ name, short, text, value }: WordFlag): string {
  const explained = zshQuote(`[${escape(text)}]${valueSpec(value)}`);
  const long = value === "none" ? `--${name}` : `--${name}=`;
  if (short === undefined) return `${zshQuote(long).slice(0, -1)}${explained.slice(1)}`;
  return `${zshQuote(`(-${short} --${name})`)}{-${short},${long}}${explained}`;
}

function valueSpec(value: WordFlag["value"]): string {
  if (value === "none") return "";
  if (value === "file") return ":file:_files";
  return value === "text" ? ":value: " : `:value:(${value.join(" ")})`;
}

/** Brackets and colons end parts of a spec. */
const escape = (text: string): string => text.replace(/[[\]:\\]/g, "\\$&");

const zshQuote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

export const fishScript = (commands: readonly WordCommand[]): string => `\
# fish completion of leasehold: leasehold completion fish | source
${FISH_HELPERS}complete -c leasehold -f
${FIRST_FLAGS.map((flag) => `complete -c leasehold -n __fish_use_subcommand -l ${flag.slice(2)}`).join("\n")}
${commands.flatMap(linesOf).join("\n")}
`;

/** Whether the command is this one; the command to run behind `--`, and its files, as if it were alone. */
const FISH_HELPERS = `\
function __leasehold_is
  set -l words (commandline -opc)
  test (count $words) -gt 1; and test "$words[2]" = "$argv[1]"
end
function __leasehold_is_behind_dashes
  __leasehold_is $argv[1]; and contains -- -- (commandline -opc)
end
function __leasehold_command
  set -l words (commandline -opc)
  set -l dashes (contains -i -- -- $words)
  complete -C (string join ' ' -- (string escape -- $words[(math $dashes + 1)..]) (commandline -ct))
end
`;

function linesOf({ name, summary, flags, words, takesCommand }: WordCommand): string[] {
  const own = `complete -c leasehold -n ${fishQuote(`__leasehold_is ${name}`)}`;
  const behind = `complete -c leasehold -n ${fishQuote(`__leasehold_is_behind_dashes ${name}`)}`;
  return [
    `complete -c leasehold -n __fish_use_subcommand -a ${name} -d ${fishQuote(summary)}`,
    ...(words.length > 0 ? [`${own} -a ${fishQuote(words.join(" "))}`] : []),
    ...flags.map((flag) => `${own} ${flagWords(flag)}`),
    ...(takesCommand ? [`${behind} -a '(__leasehold_command)'`] : []),
  ];
}

const flagWords = ({ name, short, text, value }: WordFlag): string =>
  [
    `-l ${name}`,
    ...(short === undefined ? [] : [`-s ${short}`]),
    ...valueWords(value),
    `-d ${fishQuote(text)}`,
  ].join(" ");

function valueWords(value: WordFlag["value"]): string[] {
  if (value === "none") return [];
  if (value === "file") return ["-r", "-F"];
  return value === "text" ? ["-x"] : ["-x", `-a ${fishQuote(value.join(" "))}`];
}

const fishQuote = (text: string): string => `'${text.replace(/['\\]/g, "\\$&")}'`;

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript };

/** `commands`: all of the program. This command is one of them, so they are known only when it runs. */
export const completion = (commands: () => Promise<readonly AnyCommand[]>): AnyCommand =>
  command({
    name: "completion",
    args: Object.keys(SCRIPTS).join("|"),
    positionals: [1, 1],
    needsNoEtcd: true,
    endsWithOutput: true,
    summary: "print the completion script of a shell",
    help: [
      "Prints the script that completes commands and flags in your shell:",
      "bash: source <(leasehold completion bash) in ~/.bashrc",
      "zsh: source <(leasehold completion zsh) in ~/.zshrc, after compinit",
      "fish: leasehold completion fish | source, in config.fish",
    ],
    flags: {},
    async run({ positionals: [shell = ""], io, json: wantsJson }) {
      if (!isShell(shell))
        throw usageError(`a shell must be bash, zsh or fish, got ${JSON.stringify(shell)}`);
      const script = SCRIPTS[shell](wordsOf(await commands()));
      await write(io, wantsJson ? json({ shell, script } satisfies CompletionJson) : script);
      return EXIT.ok;
    },
  });

const isShell = (shell: string): shell is keyof typeof SCRIPTS => Object.hasOwn(SCRIPTS, shell);
