import type { Of } from "../../lab/runner/subject.js";
import type { Build } from "../run/build.js";
import { CLIENT_FAULTS } from "../run/faults.js";
import { runSim, type SimOptions, type SimResult } from "../run/sim-run.js";
import { overTransport, swarmOf } from "../run/swarm.js";
import { checkAdmission } from "./admission/check.js";
import { checkTrace } from "./check.js";
import type { Checked } from "./checked.js";
import { TraceRecorder } from "./recording/recorder.js";

/** The model has no readers and no permits: a smaller one judges them. */
const ADMISSION: readonly Of[] = ["rwlock", "semaphore"];

const UNTRACED: readonly Of[] = ["once", "weblock", "weighted", "priority"];

export interface Traced {
  /** Default: that of the seed. */
  readonly of?: Of | undefined;
  /** Default: those of the seed that break processes, links and keys. */
  readonly faults?: readonly string[];
  /** Runs over the client's own HTTP/2 and gRPC, and adds the transport's faults. Default: false. */
  readonly transport?: boolean | undefined;
}

/** The setting of a seed with one member: the model has one state of etcd, which all members have. */
export function tracedSetting(
  seed: string,
  { of, faults, transport = false }: Traced = {},
): Omit<SimOptions, "build"> {
  const swarm = swarmOf(seed);
  const known = CLIENT_FAULTS.map(({ name }) => name).filter((name) => swarm.faults.includes(name));
  // The check does not know yet that the answer to a put of a mark may show that the key of its hold is gone. It knows no steal.
  const own = UNTRACED.includes(swarm.of) ? "mutex" : swarm.of;
  const setting = { ...swarm, of: of ?? own, members: 1, auth: false, faults: faults ?? known };
  return transport ? overTransport(setting) : setting;
}

/** One run of a seed with its trace. `locks`: the prefix of the names. */
export async function recordedRun(seed: string, build: Build, traced?: Traced) {
  const recorder = new TraceRecorder();
  const options = tracedSetting(seed, traced);
  const result = await runSim({ ...options, build: recorder.recorded(build), observer: recorder });
  return { events: recorder.events, locks: result.run.setting.locks, result };
}

/** One run of a seed, and whether its trace is a path of the model. */
export async function tracedRun(
  seed: string,
  build: Build,
  traced?: Traced,
): Promise<Checked & { readonly result: SimResult }> {
  const { events, locks, result } = await recordedRun(seed, build, traced);
  const check = ADMISSION.includes(tracedSetting(seed, traced).of) ? checkAdmission : checkTrace;
  return { ...check(events, locks), result };
}
