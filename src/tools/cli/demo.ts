// The demo of `examples/demo`, which the build puts into dist/demo/. It runs its processes from there.
import { CONNECTION_FLAGS } from "./arguments.js";
import { command } from "./command.js";
import { CliError, EXIT, type Io, usageError } from "./io.js";

/** What `dist/demo/play.js` exports. */
interface Demo {
  /** Checks what was given for the flags. */
  readonly optionsOf: (given: Readonly<Record<string, string | boolean | undefined>>) => unknown;
  /** An etcd of its own, in a process of its own. */
  readonly startDev: () => Promise<unknown>;
  /** Resolves with whether every promise was kept. */
  readonly play: (performance: {
    readonly options: unknown;
    readonly start: () => Promise<unknown>;
    readonly screen: Io["stdout"];
    readonly json: boolean;
    readonly interrupt: AbortSignal;
  }) => Promise<boolean>;
  /** The endpoints that the user has given do not answer. */
  readonly NoEtcdError: new () => Error;
}

export const demo = command({
  name: "demo",
  args: "",
  positionals: [0, 0],
  endsWithOutput: true,
  summary: "watch a lock survive a killed holder, a frozen one and a killed leader: needs no etcd",
  help: [
    "Processes contend for one lock and count in etcd, while the holder is killed, another one is frozen beyond its lease (not on Windows), and etcd's leader is killed. A separate process judges what happened, after about twenty seconds.",
    "It starts the etcd of leasehold dev, three members on free ports of 127.0.0.1, and ends it. With --endpoints it uses that etcd instead, below a random prefix that it removes, and leaves the servers alone; ETCDCTL_ENDPOINTS has no effect.",
    "Exit code: 0 if all promises were kept, 1 if one was broken.",
  ],
  flags: {
    workers: { value: "N", text: "contending processes, 5 to 26; default 5" },
    seed: {
      value: "N",
      text: "order and moments of the faults, and lengths of the work; default: random, printed",
    },
    sabotage: { value: "fence", text: "the workers skip the fence: the verdict must find it" },
    ui: { text: "also serve the live page of the queue, and print its address" },
  },
  async run({ flags, io, json, signal }) {
    const given: Readonly<Record<string, string | true | undefined>> = flags;
    const needless = Object.keys(CONNECTION_FLAGS).find((name) => name !== "endpoints" && given[name]);
    if (needless !== undefined) throw usageError(`demo takes no --${needless}`);
    const { optionsOf, startDev, play, NoEtcdError } = (await import(
      new URL("./demo/play.js", import.meta.url).href
    )) as Demo;
    const options = optionsOf(given);
    try {
      const kept = await play({ options, start: startDev, screen: io.stdout, json, interrupt: signal });
      return kept ? EXIT.ok : EXIT.nothing;
    } catch (error) {
      if (!(error instanceof NoEtcdError)) throw error;
      throw new CliError(EXIT.unavailable, error.message, "check --endpoints, or leave it out");
    }
  },
});
