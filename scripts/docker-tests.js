// Runs test/docker against etcd in a container; exits with 75 and `not run: reason` if there is no docker engine.
import { dockerEngine } from "../test/support/servers/docker-engine.js";
import { containersOf, provideImage } from "../test/support/servers/docker-image.js";
import { exitNotRun, runVitest } from "./vitest-run.js";

const engine = await dockerEngine().catch(exitNotRun);
try {
  const { image, made } = await provideImage({ ...process.env, ...engine.env });
  console.log(`Image ${image}: ${made}.`);
  const env = { ...engine.env, ...containersOf(image) };
  process.exitCode = await runVitest("test/docker", { env, within: engine.within });
} finally {
  await engine.stop();
}
