import { COMMON_FLAGS } from "./arguments.js";
import type { AnyCommand, Flags } from "./command.js";

/** `leasehold --help`. */
export const overview = (commands: readonly AnyCommand[]): string =>
  [
    "leasehold: distributed locks and leader election on etcd, from the command line",
    "",
    "usage: leasehold COMMAND [FLAGS] [ARGS]",
    "",
    ...columns(commands.map(({ name, args, summary }) => [`  ${name} ${args}`.trimEnd(), summary])),
    "",
    "leasehold COMMAND --help explains one of them. leasehold --version prints the version.",
    "",
  ].join("\n");

/** `leasehold COMMAND --help`. */
export const helpOf = ({ name, args, help, flags }: AnyCommand): string =>
  [
    `usage: leasehold ${name} [FLAGS] ${args}`.trimEnd(),
    "",
    ...help.flatMap((paragraph) => [paragraph, ""]),
    ...(Object.keys(flags).length > 0 ? ["flags:", ...flagLines(flags), ""] : []),
    "flags of every command:",
    ...flagLines(COMMON_FLAGS),
    "",
  ].join("\n");

const flagLines = (flags: Flags): string[] =>
  columns(
    Object.entries(flags).map(([name, { value, short, text }]) => [
      `  ${short === undefined ? "" : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`,
      text,
    ]),
  );

const columns = (rows: readonly (readonly [string, string])[]): string[] => {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `${left.padEnd(width)}  ${right}`);
};
