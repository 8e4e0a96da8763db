import { fileURLToPath } from "node:url";
import { goProgram } from "../../test/support/programs/go-program.js";

/** The built program in bench/go; rejects with a `NotRunError` if it cannot be built. */
export const goContender = () => goProgram(fileURLToPath(new URL("../go/", import.meta.url)), "bench");
