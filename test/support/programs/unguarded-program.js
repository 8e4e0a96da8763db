// A program whose guardian cannot be started: `node unguarded-program.js OPTIONS FOLDER`. It uses a copy of the library in FOLDER, whose
// guardian is removed after `connect`. Prints a line of JSON with the warnings of the process and the health after some renewals.
import { subscribe } from "node:diagnostics_channel";
import { rmSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [options = "", folder = ""] = process.argv.slice(2);
const RENEWALS = 4;
/** @type {typeof import("leasehold")} */
const { connect } = await import(pathToFileURL(path.join(folder, "leasehold.js")).href);
/** @type {{ code: string | undefined, message: string }[]} */
const warnings = [];
process.on("warning", (warning) => {
  const { code } = /** @type {NodeJS.ErrnoException} */ (warning);
  warnings.push({ code, message: warning.message });
});
const cluster = connect({ guardian: true, ...JSON.parse(options) });
rmSync(path.join(folder, "leasehold-guardian.js"));
let renewals = 0;
const renewed = new Promise((resolve) =>
  subscribe("leasehold.session.renewed", () => ++renewals === RENEWALS && resolve(undefined)),
);
await cluster.session();
await renewed;
console.log(JSON.stringify({ warnings, health: cluster.health() }));
await cluster.close();
