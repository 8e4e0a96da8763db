// A child process of the page: runs seed after seed with a broken rule until one notices.
import { judge } from "../../../lab/checker/judge.js";
import { mutantOf } from "../../run/build.js";
import { runSim } from "../../run/sim-run.js";
import { swarmOf } from "../../run/swarm.js";

/** A message to the page's server. */
export interface Progress {
  readonly tried: number;
  readonly seed?: string;
  readonly broken?: string;
}

Error.stackTraceLimit = 0;

const [mutant = "", most = "0"] = process.argv.slice(2);
const build = await mutantOf(mutant);
for (let seed = 1; seed <= Number(most); seed++) {
  const { run } = await runSim({ ...swarmOf(String(seed)), build });
  const [found] = Object.entries(judge(run).violations);
  if (found !== undefined) {
    const broken = `${found[0]}: ${found[1][0]}`;
    process.send!({ tried: seed, seed: String(seed), broken } satisfies Progress);
    break;
  }
  process.send!({ tried: seed } satisfies Progress);
}
process.disconnect();
