// @ts-check
// A child's end of the channel to the demo that started it.

/**
 * Sends a message to the screen, unless the parent has died.
 * @param {object} message
 */
export function tell(message) {
  // With a callback, it is not an error if the parent dies at this moment.
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}

/**
 * When the demo asks to end, `end` runs and then the process may exit; when the demo has died, it exits at once.
 * @param {() => void} end
 */
export function obey(end) {
  // Ctrl-C reaches every process of the terminal, but the demo alone decides which process ends when.
  process.on("SIGINT", () => {});
  process.on("disconnect", () => process.exit());
  // It may have died before this process was listening.
  if (!process.connected) process.exit();
  process.once("message", end);
}
