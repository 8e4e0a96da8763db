import { fileURLToPath } from "node:url";
import { goProgram as built, requiredClient } from "../../../support/programs/go-program.js";

const FOLDER = fileURLToPath(new URL("./", import.meta.url));

/** The built program beside this file; rejects with a `NotRunError` where it cannot be built. */
export const goProgram = async () => (await built(FOLDER, "rivals")).path;

/** Such as "v3.7.3". */
export const goClientVersion = () => requiredClient(FOLDER);
