import { FIRST_FLAGS, type WordCommand, type WordFlag } from "./words.js";

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
${PREVIOUS}${behindDashes(commands)}  case "\${COMP_WORDS[1]} $prev" in
${commands.flatMap(valueCases).join("\n")}
  esac
  case "\${COMP_WORDS[1]}" in
${commands.map(commandCase).join("\n")}
  esac
  [[ "$cur" == -* ]] && words="$flags"
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
${HELPERS}complete -F _leasehold leasehold
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

const behindDashes = (commands: readonly WordCommand[]): string => `\
  for ((i = 2; i < COMP_CWORD; i++)); do
    [[ "\${COMP_WORDS[i]}" == "--" ]] || continue
    case "\${COMP_WORDS[1]}" in
      ${namesOf(commands.filter(({ takesCommand }) => takesCommand))}) _leasehold_command "$((i + 1))" ;;
    esac
    return
  done
`;

/** The command behind `--` and its files; a file. */
const HELPERS = `\
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

const commandCase = ({ name, flags, words }: WordCommand): string =>
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
