// Runs the tests that `npm test` runs on PGlite on a real PostgreSQL; exits with 75 and `not run: reason` if there is
// none.
import { findPostgres } from "../test/support/servers/postgres.js";
import { exitNotRun, runVitest } from "./vitest-run.js";

const { version } = await findPostgres().catch(exitNotRun);
console.log(`PostgreSQL ${version}.`);
const filter = "test/meta/examples/fenced-postgres";
process.exitCode = await runVitest(filter, { env: { LEASEHOLD_POSTGRES: version } });
