// One run of the lab inside the surroundings that its tier requires. Argument: a JSON InsideTask; the history is left
// in its folder `keep`.
import { tierOf, type TierName } from "../tiers/index.js";
import { NotRunError } from "./ground.js";
import { runLab } from "./lab.js";
import type { InsideTask, Told } from "./surroundings.js";

const { tier, ...options } = JSON.parse(process.argv[2] ?? "") as InsideTask;
const tell = (told: Told) => new Promise((sent) => process.send?.(told, sent));

// If the process that started it has died, the run ends too; the guardians clean up behind it.
const orphaned = () => process.exit(70);
process.once("disconnect", orphaned);
try {
  const { planned, version } = await runLab({
    ...options,
    tier: tierOf(tier as TierName),
    say: (say) => void tell({ say }),
  });
  await tell({ done: { planned, version } });
} catch (error) {
  if (!(error instanceof NotRunError)) throw error;
  await tell({ notRun: error.message });
} finally {
  process.off("disconnect", orphaned);
  process.disconnect();
}
