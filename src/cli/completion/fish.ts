import { FIRST_FLAGS, type WordCommand, type WordFlag } from "./words.js";

export const fishScript = (commands: readonly WordCommand[]): string => `\
# fish completion of leasehold: leasehold completion fish | source
${HELPERS}complete -c leasehold -f
${FIRST_FLAGS.map((flag) => `complete -c leasehold -n __fish_use_subcommand -l ${flag.slice(2)}`).join("\n")}
${commands.flatMap(linesOf).join("\n")}
`;

/** Whether the command is this one; the command to run behind `--`, and its files, as if it were alone. */
const HELPERS = `\
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
  const own = `complete -c leasehold -n ${quote(`__leasehold_is ${name}`)}`;
  const behind = `complete -c leasehold -n ${quote(`__leasehold_is_behind_dashes ${name}`)}`;
  return [
    `complete -c leasehold -n __fish_use_subcommand -a ${name} -d ${quote(summary)}`,
    ...(words.length > 0 ? [`${own} -a ${quote(words.join(" "))}`] : []),
    ...flags.map((flag) => `${own} ${flagWords(flag)}`),
    ...(takesCommand ? [`${behind} -a '(__leasehold_command)'`] : []),
  ];
}

const flagWords = ({ name, short, text, value }: WordFlag): string =>
  [
    `-l ${name}`,
    ...(short === undefined ? [] : [`-s ${short}`]),
    ...valueWords(value),
    `-d ${quote(text)}`,
  ].join(" ");

function valueWords(value: WordFlag["value"]): string[] {
  if (value === "none") return [];
  if (value === "file") return ["-r", "-F"];
  return value === "text" ? ["-x"] : ["-x", `-a ${quote(value.join(" "))}`];
}

const quote = (text: string): string => `'${text.replace(/['\\]/g, "\\$&")}'`;
