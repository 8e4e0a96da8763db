// @ts-check
// A child's end of the line to the demo that started it.

/**
 * To the screen, if anybody is still there to look.
 * @param {object} message
 */
export function tell(message) {
  // With a callback a parent that died in this very moment is no error of ours.
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}

/**
 * When the demo asks to end, `end` runs and then the process may exit; when the demo has died, it exits at once.
 * @param {() => void} end
 */
export function obey(end) {
  // Ctrl-C reaches every process of the terminal, but who ends when is decided by the demo alone.
  process.on("SIGINT", () => {});
  process.on("disconnect", () => process.exit());
  process.once("message", end);
}
