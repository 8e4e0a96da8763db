import { fileURLToPath } from "node:url";
import { goProgram as built, requiredClient } from "../../../support/programs/go-program.js";

const FOLDER = fileURLToPath(new URL("./", import.meta.url));

/** The built program next to this file; rejects with a `NotRunError` where it cannot be built. */
export const goProgram = async () => (await built(FOLDER, "rivals")).path;

/** For example "v3.7.3". */
export const goClientVersion = () => requiredClient(FOLDER);
