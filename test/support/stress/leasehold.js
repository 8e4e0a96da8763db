// The built package, as a user's program has it. By a variable, so that types come from the sources and need no build.
const packageName = "leasehold";
export const { connect, Mutex, Session, whileHeld } = /** @type {typeof import("../../../src/index.js")} */ (
  await import(packageName)
);
