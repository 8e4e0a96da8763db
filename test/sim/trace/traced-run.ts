import type { Build } from "../run/build.js";
import { CLIENT_FAULTS } from "../run/faults.js";
import { runSim, type SimOptions, type SimResult } from "../run/sim-run.js";
import { swarmOf } from "../run/swarm.js";
import { checkTrace, type Checked } from "./check.js";
import { TraceRecorder } from "./recorder.js";

/**
 * The setting of a seed with the calls of mutexes and one member: the model has one state of etcd, which all members have.
 * `faults`: default: those of the seed that break processes, links and keys.
 */
export function tracedSetting(seed: string, faults?: readonly string[]): Omit<SimOptions, "build"> {
  const swarm = swarmOf(seed);
  const known = CLIENT_FAULTS.map(({ name }) => name).filter((name) => swarm.faults.includes(name));
  return { ...swarm, of: "mutex", members: 1, auth: false, faults: faults ?? known };
}

/** One run of a seed, and whether its trace is a path of the model. */
export async function tracedRun(
  seed: string,
  build: Build,
  faults?: readonly string[],
): Promise<Checked & { readonly result: SimResult }> {
  const recorder = new TraceRecorder();
  const options = tracedSetting(seed, faults);
  const result = await runSim({ ...options, build: recorder.recorded(build), observer: recorder });
  return { ...checkTrace(recorder.events, result.run.setting.locks), result };
}
