// Checks the histories of simulated runs with Porcupine, a checker of linearizability in Go: test/sim/porcupine/README.md. Its
// options are those of test/sim/porcupine/main.ts. Prints `not run: reason` without Go or its modules.
import { fileURLToPath } from "node:url";

process.argv.splice(2, 0, fileURLToPath(new URL("../test/sim/porcupine/main.ts", import.meta.url)));
await import("./ts.js");
