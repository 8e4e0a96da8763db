import type { WordCommand, WordFlag } from "./words.js";

export const zshScript = (commands: readonly WordCommand[]): string => `\
#compdef leasehold
# zsh completion of leasehold: source <(leasehold completion zsh), or a file _leasehold in a folder of fpath
_leasehold() {
  local -a known
  known=(
${commands.map(({ name, summary }) => `    ${quote(`${name}:${summary}`)}`).join("\n")}
  )
  if ((CURRENT == 2)); then
    _describe -t commands command known
    _arguments '--help[show the commands]' '--version[print the version]'
    return
  fi
  local chosen=$words[2]
${behindDashes(commands)}  shift words
  ((CURRENT--))
  case $chosen in
${commands.map(commandCase).join("\n")}
  esac
}
${REGISTER}`;

/** The command to run, as if it were alone. */
const behindDashes = (commands: readonly WordCommand[]): string => `\
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

function commandCase({ name, flags, words }: WordCommand): string {
  const specs = [...flags.map(flagSpec), ...(words.length > 0 ? [quote(`1:word:(${words.join(" ")})`)] : [])];
  return `    ${name}) _arguments -s \\\n      ${specs.join(" \\\n      ")} ;;`;
}

function flagSpec({ name, short, text, value }: WordFlag): string {
  const explained = quote(`[${escape(text)}]${valueSpec(value)}`);
  const long = value === "none" ? `--${name}` : `--${name}=`;
  if (short === undefined) return `${quote(long).slice(0, -1)}${explained.slice(1)}`;
  return `${quote(`(-${short} --${name})`)}{-${short},${long}}${explained}`;
}

function valueSpec(value: WordFlag["value"]): string {
  if (value === "none") return "";
  if (value === "file") return ":file:_files";
  return value === "text" ? ":value: " : `:value:(${value.join(" ")})`;
}

/** Brackets and colons end parts of a spec. */
const escape = (text: string): string => text.replace(/[[\]:\\]/g, "\\$&");

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
