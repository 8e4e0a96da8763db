// Runs a question: on separate servers, each case in several rounds, in which the peers alternate.
import type { Guardian } from "../../test/support/servers/guarded.js";
import { EtcdMissingError } from "../../test/support/etcd/etcd.js";
import { RedisMissingError } from "../../test/support/servers/redis.js";
import { NotRunError } from "../../test/lab/runner/ground.js";
import { PEERS, type GroundKind, type PeerName } from "../peers/peers.js";
import type { Case, Question } from "../questions/question.js";
import { Crew } from "./crew.js";
import type { Figures, Scale } from "./field.js";
import { startGround, type Ground } from "./ground.js";

/** The number of rounds of peers that no target compares. */
const ROUNDS_OF_OTHERS = 1;

export interface Row {
  readonly case: string;
  readonly contenders?: number;
  readonly peer: PeerName;
  readonly rounds: readonly Figures[];
}

/** A round that ended with an error. */
export interface Failure {
  readonly peer: PeerName;
  readonly why: string;
}

export interface Asked {
  readonly question: Question;
  readonly rows: readonly Row[];
  readonly failed: readonly Failure[];
  readonly servers: readonly string[];
}

export interface BenchOptions {
  readonly scale: Scale;
  /** Only cases whose name contains this. */
  readonly inCase: string;
  readonly build: string | undefined;
  readonly guardian: Guardian;
  /** Called after each run. */
  readonly onRun: (what: string) => void;
}

/** The peers' processes and why some are missing; kept from question to question. */
export class Bench {
  readonly notRun = new Map<PeerName, string>();
  readonly versions = new Map<PeerName, string>();
  readonly #crews = new Map<PeerName, Crew>();
  readonly #options: BenchOptions;
  #names = 0;

  constructor(options: BenchOptions) {
    this.#options = options;
  }

  async ask(question: Question): Promise<Asked> {
    const grounds = new Map<GroundKind, Ground>();
    const rows: Row[] = [];
    const failed: Failure[] = [];
    try {
      const { scale, inCase } = this.#options;
      for (const each of question.cases(scale).filter(({ name }) => name.includes(inCase)))
        rows.push(...(await this.#rounds({ question, grounds, failed }, each)));
      const servers = [...grounds.values()].map(({ version }) => version);
      return { question, rows, failed, servers: [...new Set(servers)] };
    } finally {
      await Promise.all([...grounds.values()].map((ground) => ground.stop()));
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#crews.values()].map((crew) => crew.stop()));
  }

  async #rounds(asking: Asking, each: Case): Promise<Row[]> {
    const { scale } = this.#options;
    const rounds = Math.min(scale.rounds, each.rounds ?? scale.rounds);
    const found = new Map<PeerName, Figures[]>();
    for (let round = 0; round < rounds; round++) {
      // Last: what the others do meanwhile would make the first rounds of the compared peers differ from the next ones.
      const others = rounds - round <= ROUNDS_OF_OTHERS ? (each.others ?? []) : [];
      for (const peer of [...rotated(each.peers, round), ...others]) {
        const figures = await this.#once(asking, each, peer);
        if (figures !== undefined) found.set(peer, [...(found.get(peer) ?? []), figures]);
      }
    }
    const inOrder = [...each.peers, ...(each.others ?? [])].flatMap((peer) => {
      const all = found.get(peer);
      return all === undefined ? [] : [{ peer, rounds: all }];
    });
    const { name, contenders } = each;
    return inOrder.map((row) => ({ case: name, ...(contenders !== undefined && { contenders }), ...row }));
  }

  async #once(
    { question, grounds, failed }: Asking,
    each: Case,
    name: PeerName,
  ): Promise<Figures | undefined> {
    if (this.notRun.has(name)) return undefined;
    const { scale, build, onRun } = this.#options;
    const peer = PEERS[name];
    try {
      const [crew, bare] = [await this.#crew(name), await this.#crew("bare")];
      const ground = grounds.get(peer.ground) ?? (await startGround(peer.ground, question.members));
      grounds.set(peer.ground, ground);
      const figures = await each.run({
        ...{ peer, crew, bare, ground, scale, build },
        name: `bench-${++this.#names}`,
      });
      onRun(`${question.name}: ${each.name}: ${peer.title}`);
      return figures;
    } catch (error) {
      if (error instanceof EtcdMissingError) throw error;
      const { message } = error as Error;
      if (error instanceof NotRunError || error instanceof RedisMissingError) this.notRun.set(name, message);
      else failed.push({ peer: name, why: `${each.name}: ${peer.title}: ${message}` });
      // The run has ended with an error, so the state of its processes is unknown.
      await this.#crews.get(name)?.stop();
      onRun(`${question.name}: ${each.name}: ${peer.title}: not run: ${message}`);
      return undefined;
    }
  }

  async #crew(name: PeerName): Promise<Crew> {
    const { build, guardian } = this.#options;
    const crew = this.#crews.get(name) ?? (await Crew.of(PEERS[name], build, guardian));
    this.#crews.set(name, crew);
    this.versions.set(name, crew.version);
    return crew;
  }
}

interface Asking {
  readonly question: Question;
  readonly grounds: Map<GroundKind, Ground>;
  readonly failed: Failure[];
}

/** Each comes first equally often. */
export function rotated<T>(all: readonly T[], by: number): T[] {
  const start = by % Math.max(1, all.length);
  return [...all.slice(start), ...all.slice(0, start)];
}
