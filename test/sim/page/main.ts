import { judge } from "../../lab/checker/judge.js";
import { mutantOf, sources } from "../run/build.js";
import { BadRequest } from "./orders.js";
import { PageServer } from "./server.js";
import { PlaySession } from "./session.js";
import { parseSetting } from "./setting.js";

/** No faults are planned: viewers of the page inject them. */
const FIRST = "seed=22&version=3.6&of=mutex&members=3&processes=3&lanes=1&names=2&ttl=5&faults=";

/** `--ui`: serves the page, and prints its address, until the process is ended. `query`: what the page starts with. */
export async function serve(query = FIRST): Promise<void> {
  const server = await PageServer.start().catch(exitWith);
  await server.table.start(query || FIRST).catch((error: unknown) => {
    server.close();
    exitWith(error);
  });
  console.log(server.url);
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => server.close());
}

/** `--play QUERY`: the run of a page's address, without the page. Exit code 1: an invariant was broken. */
export async function play(query: string): Promise<void> {
  const setting = await Promise.resolve(query).then(parseSetting).catch(exitWith);
  const session = new PlaySession(setting, await (setting.mutant ? mutantOf(setting.mutant) : sources()));
  session.pacer.seek(() => false);
  await session.play();
  for (const { ms, text, tone } of session.story.more())
    if (tone !== "minor") console.log(`${ms.toFixed(3)} ${text}`);
  const { run, hash, calls } = session.run.result();
  const { violations } = judge(run);
  for (const [label, texts] of Object.entries(violations))
    for (const text of texts) console.log(`${label}: ${text}`);
  console.log(`hash ${hash}, ${calls} calls${session.problem && `, ${session.problem}`}`);
  if (session.phase === "failed" || Object.keys(violations).length > 0) process.exitCode = 1;
}

function exitWith(error: unknown): never {
  console.error(error instanceof BadRequest ? error.message : error);
  process.exit(64);
}
