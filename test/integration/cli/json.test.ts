// Real output of --json against src/cli/command-line/json-types.ts, which docs/cli.md quotes.
import { expect, test } from "vitest";
import { Election, Mutex } from "../../../src/index.js";
import { putKeys } from "../../support/clients/many-keys.js";
import { type JsonSample, objectionsTo } from "../../support/fixtures/json-samples.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { runCli, startCli } from "../../support/programs/cli.js";

const two = twoSessions(30);
const endpoints = () => two.etcd.endpoints.join(",");

async function linesOf(...words: string[]): Promise<string[]> {
  const { stdout, stderr } = await runCli([...words, "--json"], { endpoints: endpoints() });
  return `${stdout}${stderr}`.split("\n").slice(0, -1);
}

const samples = (type: string, lines: readonly string[]): JsonSample[] =>
  lines.map((line) => ({ type, line }));

test("every line of every command has the type that is documented, and nothing else", async () => {
  const lock = await new Mutex(two.holder, "json/lock").lock();
  const leadership = await new Election(two.holder, "json/leader").campaign("x");
  await putKeys(two.etcd.member, ["json/lock/6a1f", "json/junk/1/2"]);
  const observing = startCli(["observe", "json/leader", "--json"], { endpoints: endpoints() });
  await observing.says("\n");
  await leadership.resign();
  await observing.says("null}\n");
  observing.child.kill("SIGINT");
  const observed = (await observing.ended).stdout.split("\n").slice(0, -1);

  const all = [
    samples("LockJson", await linesOf("ls", "json/")),
    samples("QueueJson", await linesOf("show", "json/lock")),
    samples("QueueJson", await linesOf("show", "json/none")),
    samples("LeaderJson", await linesOf("leader", "json/none")),
    samples("LeaderJson", await linesOf("leader", "json/lock")),
    samples("LeaderJson", observed),
    samples("ReleaseJson", await linesOf("release", "json/lock", "--yes")),
    samples("ReleaseJson", await linesOf("release", "json/none", "--yes")),
    samples("CompletionJson", await linesOf("completion", "bash")),
    samples("ErrorJson", await linesOf("show", "/")),
  ];

  expect(all.map((lines) => lines.length)).toEqual([2, 1, 1, 1, 1, 2, 1, 1, 1, 1]);
  expect(objectionsTo(all.flat())).toEqual([]);
  await lock.release().catch(() => {});
});

test("the check objects to a field that is missing, of another type, or undocumented", () => {
  const leader = (fields: string) => ({ type: "LeaderJson", line: `{"name":"a","leader":null${fields}}` });

  expect(objectionsTo([leader("")])).toEqual([]);
  expect(objectionsTo([leader(',"more":1')])).toHaveLength(1);
  expect(objectionsTo([{ type: "LeaderJson", line: '{"name":"a"}' }])).toHaveLength(1);
  expect(objectionsTo([{ type: "LeaderJson", line: '{"name":1,"leader":null}' }])).toHaveLength(1);
});
