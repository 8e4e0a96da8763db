// @ts-check
// Turns events into the text of the timeline.

/** @typedef {import("./stage.js").StageEvent} StageEvent */
/** @typedef {import("./paint.js").Paint} Paint */
/**
 * The contents of a row; omitted fields show the current state.
 * @typedef {{ text: string, holder?: string, fence?: number, counter?: string }} Told
 */

/**
 * @param {StageEvent} event
 * @param {Paint} paint
 * @param {number} counter its value before this event
 * @returns {Told | undefined} undefined: not worth a row
 */
export function describe(event, paint, counter) {
  switch (event.k) {
    case "counted":
      return counted(event, paint, counter);
    case "wrote":
      return event["outcome"] === "accepted" ? undefined : notWritten(event, paint);
    case "fault":
      return { text: FAULTS[event["fault"]]?.(event, paint) ?? "" };
    case "recovered":
      return { text: recovered(event, paint) };
    default:
      return other(event, paint);
  }
}

/**
 * @param {StageEvent} event
 * @param {Paint} paint
 * @param {number} counter
 * @returns {Told}
 */
function counted({ n, by, fence }, paint, counter) {
  const step = { holder: by, fence, counter: `${counter}→${n}` };
  if (n === counter + 1) return { ...step, text: "" };
  const lost = `${paint.alarm("UPDATE LOST")} ${paint.red(`${by}'s stale write (fence ${fence}) got in`)}`;
  if (n <= counter) return { counter: step.counter, text: lost };
  return { ...step, text: paint.red(`${by} had read ${n - 1}, before the stale write`) };
}

/**
 * @param {StageEvent} event
 * @param {Paint} paint
 * @returns {Told}
 */
function notWritten({ p, n, fence, outcome }, paint) {
  if (outcome === "unknown") return { text: paint.yellow(`${p}'s write of ${n} got no answer`) };
  return { text: `${paint.green("✔ REFUSED by etcd:")} ${p}'s write of ${n} with fence ${fence}` };
}

/** @type {Record<string, (event: StageEvent, paint: Paint) => string>} */
const FAULTS = {
  "kill-holder": ({ target }, { alarm }) => `${alarm("KILL -9")} ${target}, which holds the lock`,
  "pause-holder": ({ target }, { frost }) => `${frost("FREEZE")} ${target} (SIGSTOP), just before it writes`,
  "kill-leader": ({ target }, { alarm }) => `${alarm("KILL")} etcd's leader ${target}`,
};

/**
 * @param {StageEvent} event
 * @param {Paint} paint
 */
function recovered({ fault, target, by, ms, kept }, paint) {
  if (ms === undefined) return paint.red("✖ and nobody goes on");
  const after = `after ${(ms / 1000).toFixed(1)} s`;
  const wrote = kept ? `${by} kept the lock and wrote` : `${by}'s write got through`;
  if (fault === "kill-leader") return `${paint.green("✔")} new leader: ${wrote} ${after}`;
  return `${paint.green("✔")} ${target}'s lease ran out: ${by}'s turn ${after}`;
}

/**
 * @param {StageEvent} event
 * @param {Paint} paint
 * @returns {Told | undefined}
 */
function other(event, paint) {
  const { k, p, target, loss, message, code, signal } = event;
  if (k === "thaw") return { text: `${paint.frost("THAW")} ${target} (SIGCONT), unaware of the time lost` };
  if (k === "lost") return { text: `${paint.yellow("!")} ${p} is told that it lost the lock (${loss})` };
  if (k === "restart") return { text: `${paint.green("✔")} etcd's ${target} is back` };
  if (k === "failed" && code === "SESSION_LOST") {
    return { text: `${paint.yellow("!")} ${p}'s lease ran out as it waited: it queues anew` };
  }
  if (k === "failed" && code !== "LOCK_LOST") return { text: paint.yellow(`! ${p}: ${brief(message)}`) };
  const unexpected = k === "exit" && code !== 0 && signal !== "SIGKILL";
  return unexpected ? { text: paint.red(`✖ ${p} ended by itself, exit code ${code}`) } : undefined;
}

/** What fits next to the columns of a row. @param {string} message */
const brief = (message) => (message.length > 48 ? `${message.slice(0, 47)}…` : message);

/** @type {Record<string, string>} */
const PENDING = {
  "kill-holder": "… waiting for the dead holder's lease to run out",
  "pause-holder": "… waiting for the frozen holder's lease to run out",
  "kill-leader": "… etcd elects a new leader",
};

/**
 * The text of a terminal's last line.
 * @param {string | undefined} holder
 * @param {string | undefined} pending the fault from which the processes have not recovered yet
 */
export function present(holder, pending) {
  if (pending !== undefined) return PENDING[pending] ?? "";
  return holder === undefined ? "" : `… ${holder} works`;
}
