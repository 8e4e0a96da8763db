// @ts-check
// Colors for a terminal: none when the output is not a terminal or NO_COLOR is set.

/** @typedef {ReturnType<typeof painter>} Paint */

const LETTERS = [36, 35, 33, 34, 32, 96, 95, 93, 94, 92];

/** @param {{ isTTY?: boolean }} stream */
export function wantsColour(stream) {
  const { NO_COLOR, TERM } = process.env;
  return Boolean(stream.isTTY) && !NO_COLOR && TERM !== "dumb";
}

/** @param {boolean} colour */
export function painter(colour) {
  const paint = (/** @type {string | number} */ code) => (/** @type {string} */ text) =>
    colour ? `\x1b[${code}m${text}\x1b[0m` : text;
  const tag = (/** @type {string} */ code) => (/** @type {string} */ text) =>
    colour ? paint(code)(` ${text} `) : `[${text}]`;
  return {
    bold: paint(1),
    dim: paint(2),
    red: paint(31),
    green: paint(32),
    yellow: paint(33),
    alarm: tag("1;97;41"),
    frost: tag("1;30;46"),
    /** Every worker has its own color, which makes it easy to follow. @param {string} name */
    worker: (name) => paint(`1;${LETTERS[(name.charCodeAt(0) - 65) % LETTERS.length]}`)(name),
  };
}
