// Command lines that the commands reject before they connect. The program's words and its exit code: integration/cli/errors.test.ts.
import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { connectionOf, parse } from "../../../../src/tools/cli/arguments.js";
import { cliErrorOf, EXIT } from "../../../../src/tools/cli/io.js";
import { allCommands, commandOf } from "../../../../src/tools/cli/commands.js";

/** Runs the command in this process, with standard input and output that are no terminal. */
async function run(name: string, words: readonly string[]): Promise<unknown> {
  const command = await commandOf(name);
  const io = { env: {}, stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  const parsed = parse(command, words);
  return command.run({
    ...{ io, ...parsed, json: false, now: () => 0, connection: connectionOf(parsed.flags, {}) },
    ...{ signal: new AbortController().signal, endingSignals: new Set() },
    connect: () => expect.unreachable("connected"),
  });
}

const RUN: readonly [flags: string, message: string][] = [
  ["--try --wait 1s", "--try and --wait exclude each other"],
  ["--shared --permits 2", "--shared and --permits exclude each other"],
  ["--permits 0", '--permits must be a whole number from 1 to 1000, got "0"'],
  ["--permits 2x", '--permits must be a whole number from 1 to 1000, got "2x"'],
  ["--weight 2", "--weight needs --permits"],
  ["--permits 4 --weight 5", '--weight must be a whole number from 1 to 4, got "5"'],
  ["--permits 4 --weight 0", '--weight must be a whole number from 1 to 4, got "0"'],
  ["--permits 4 --weight 1.5", '--weight must be a whole number from 1 to 4, got "1.5"'],
  ["--permits 4 --weight=-1", '--weight must be a whole number from 1 to 4, got "-1"'],
  ["--permits 4 --weight -1", "--weight=VALUE for one that begins with a dash"],
  ["--permits 1001 --weight 1", '--permits must be a whole number from 1 to 1000, got "1001"'],
  ["--shared --weight 2", "--shared and --weight exclude each other"],
  ["--once 1 --weight 2", "--once and --weight exclude each other"],
  ["--supersede --weight 2", "--supersede and --weight exclude each other"],
  ["--permits 4 --weight 2 --release-delay 1s", "--release-delay and --permits exclude each other"],
  ["--priority 1001", '--priority must be a whole number from -1000 to 1000, got "1001"'],
  ["--priority -5", "--priority=VALUE for one that begins with a dash"],
  ["--shared --priority 2", "--shared and --priority exclude each other"],
  ["--permits 4 --priority 2", "--permits and --priority exclude each other"],
  ["--once 1 --priority 2", "--once and --priority exclude each other"],
  ["--supersede --priority 2", "--supersede and --priority exclude each other"],
  ["--max-waiting 2 --priority 2", "--max-waiting and --priority exclude each other"],
  ["--permits 4 --weight 2 --try --reason x", "--reason and --try exclude each other"],
  ["--ttl 2500ms", '--ttl must be whole seconds from 2s to 86400s, got "2500ms"'],
  ["--ttl 1s", '--ttl must be whole seconds from 2s to 86400s, got "1s"'],
  ["--ttl 10s --grace 4s", '--grace must be at most 3500ms with a TTL of 10s, got "4s"'],
  ["--release-delay 5", '--release-delay must be a duration such as 30s, 500ms or 2m, got "5"'],
  ["--release-delay 61m", '--release-delay must be at most 1h, got "61m"'],
  ["--release-delay 1s --permits 2", "--release-delay and --permits exclude each other"],
  ["--wait 0", '--wait must be more than 0, got "0"'],
  ["--max-hold 0s", '--max-hold must be more than 0, got "0s"'],
  ["--once 1 --shared", "--once and --shared exclude each other"],
  ["--once 1 --permits 2", "--once and --permits exclude each other"],
  ["--once 1 --try", "--once and --try exclude each other"],
  ["--rerun never", "--rerun needs --once"],
  ["--if-held skip", "--if-held needs --once"],
  ["--once 1 --rerun always", '--rerun must be never, if-lost or if-failed, got "always"'],
  ["--once 1 --if-held toString", '--if-held must be wait or skip, got "toString"'],
  ["--once 1 --if-held skip --wait 1s", "--if-held skip and --wait exclude each other"],
  ["--once=", "--once must not be empty"],
  ["--if-running wait", "--if-running needs --once"],
  ["--keep-output", "--keep-output needs --once"],
  ["--keep 1h", "--keep needs --once"],
  ["--once 1 --keep 1h", "--keep needs a --once that is no whole number"],
  ["--once a --keep 999ms", '--keep must be at least 1s, got "999ms"'],
  ["--once a --keep 367d", '--keep must be a duration such as 30s, 500ms or 2m, got "367d"'],
  ["--once a --if-running queue", '--if-running must be wait, skip or fail, got "queue"'],
  ["--once a --if-running fail --if-held skip --wait 1s", "--if-held skip and --wait exclude each other"],
  [
    "--once 0123",
    '--once must be a number without leading zeros, or a text that is not digits alone, got "0123"',
  ],
  ["--once 00", "--once must be a number without leading zeros"],
  ["--once 9007199254740992", "--once must be a whole number from 0 to 9007199254740991, got"],
  ["--on-wanted TERM", '--on-wanted must be the name of a signal such as SIGTERM, got "TERM"'],
  ["--on-wanted toString", '--on-wanted must be the name of a signal such as SIGTERM, got "toString"'],
  ["--reason=", '--reason must be 1 to 256 bytes, got ""'],
  [`--reason ${"x".repeat(257)}`, "--reason must be 1 to 256 bytes, got"],
  ["--reason x --try", "--reason and --try exclude each other"],
  ["--reason x --once 1", "--once and --reason exclude each other"],
];

test.each<readonly [line: string, message: string]>([
  ...RUN.map(([flags, message]) => [`run a ${flags} -- sh`, message] as const),
  [
    "lead a --on-wanted SIGNONE -- sh",
    '--on-wanted must be the name of a signal such as SIGTERM, got "SIGNONE"',
  ],
  ["lead a --priority 1001 -- sh", '--priority must be a whole number from -1000 to 1000, got "1001"'],
  ["lead a --priority=-1001 -- sh", '--priority must be a whole number from -1000 to 1000, got "-1001"'],
  ["lead a --priority high -- sh", '--priority must be a whole number from -1000 to 1000, got "high"'],
  ["lead a --priority -5 -- sh", "--priority=VALUE for one that begins with a dash"],
  ["lead a --labels zone -- sh", '--labels must be NAME=VALUE,..., got "zone"'],
  ["lead a --labels= -- sh", '--labels must be NAME=VALUE,..., got ""'],
  ["lead a --labels =eu -- sh", '--labels must be NAME=VALUE,..., got "=eu"'],
  ["lead a --labels zone=eu, -- sh", '--labels must be NAME=VALUE,..., got "zone=eu,"'],
  ["lead a --labels a=1,b=2,a=3 -- sh", '--labels has "a" twice'],
  [`lead a --labels ${"n".repeat(65)}=x -- sh`, "--labels may have names of 64 bytes and values of 256, got"],
  [
    `lead a --labels n=${"é".repeat(129)} -- sh`,
    "--labels may have names of 64 bytes and values of 256, got",
  ],
  [
    `lead a --labels ${Array.from({ length: 17 }, (_, n) => `n${n}=`).join(",")} -- sh`,
    "--labels must be at most 16, got 17 of them",
  ],
  ["ls --limit=0", '--limit must be a whole number from 1, got "0"'],
  ["ls --limit=-1", '--limit must be a whole number from 1, got "-1"'],
  ["ls --limit=1.5", '--limit must be a whole number from 1, got "1.5"'],
  ["ls --limit=", '--limit must be a whole number from 1, got ""'],
  ["show a --limit 1001", '--limit must be a whole number from 1 to 1000, got "1001"'],
  ["release a", "release asks for confirmation, but there is no terminal"],
  ["release a -y --as lock", '--as must be name or key, got "lock"'],
  ["doctor --ttl 1s", '--ttl must be whole seconds from 2s to 86400s, got "1s"'],
  ["doctor --ttl 2500ms", '--ttl must be whole seconds from 2s to 86400s, got "2500ms"'],
  ["doctor --timeout 10ms", "--timeout must be 100ms to 60s, got 10ms"],
  ["doctor a//", "Expected name to be"],
  ["doctor --endpoints ab:c", 'Expected --endpoints to be "host:port"'],
  ["doctor --endpoints a:0", "Expected --endpoints to be addresses with a port from 1 to 65535"],
  ["demo --user root:x", "demo takes no --user"],
  ["ui --port x1", '--port must be a whole number from 0 to 65535, got "x1"'],
])("leasehold %s is wrong: %s", async (line, message) => {
  const [name = "", ...words] = line.split(" ");
  const error = await run(name, words).then(() => undefined, cliErrorOf);

  expect(error).toMatchObject({ exitCode: EXIT.usage, message: expect.stringContaining(message) as string });
});

test("no paragraph of a help has lines of its own: the terminal decides where they break", async () => {
  const texts = (await allCommands()).flatMap(({ name, help }) => help.map((text) => [name, text] as const));

  expect(texts.length).toBeGreaterThan(20);
  expect(texts.filter(([, text]) => text.includes("\n"))).toEqual([]);
});

test.each([
  ["list", "ls"],
  ["inspect", "show"],
])("names the command that does what the library's %s does", async (call, name) => {
  await expect(commandOf(call)).rejects.toThrow(`there is no command "${call}": did you mean ${name}?`);
});
