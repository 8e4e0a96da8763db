import { MUTANTS } from "../../lab/mutants/table.js";
import { SUBJECTS } from "../../lab/runner/subject.js";
import { mutantOf, sources, type Build } from "../run/build.js";
import { SIM_FAULTS } from "../run/faults.js";
import { Finder } from "./search/finder.js";
import { frameOf } from "./frame.js";
import { BadRequest, parseOrder } from "./orders.js";
import type { Hello, SearchView, Started, StoryLine } from "./protocol.js";
import { PlaySession } from "./session.js";
import { parseSetting, VERSIONS, type Setting } from "./setting.js";

const FRAME_MS = 33;
/** The judge reads the whole history: it gets a tenth of the time. */
const JUDGE_SHARE = 10;
const MOST_LINES = 400;
const SEARCH_MOST = 500;

/** Sends an event to all viewers of the page. */
export type Publish = (event: string, data: object) => void;

/** The run on the page, and what its controls do. */
export class Table {
  #session: PlaySession | undefined;
  #lines: StoryLine[] = [];
  #judgeAt = 0;
  #judgedEvents = -1;
  #drawn = "";
  readonly #finder = new Finder((view) => this.#searched(view));
  readonly #timer = setInterval(() => this.#tick(), FRAME_MS);
  #viewers = 0;

  constructor(private readonly publish: Publish) {}

  get session(): PlaySession {
    if (this.#session === undefined) throw new BadRequest("No run was started");
    return this.#session;
  }

  /** @throws {BadRequest} */
  async start(query: string): Promise<void> {
    const setting = parseSetting(query);
    const build: Build = await (setting.mutant === "" ? sources() : mutantOf(setting.mutant));
    this.#session?.pacer.end();
    const session = new PlaySession(setting, build);
    this.#session = session;
    this.#lines = [];
    this.#judgeAt = 0;
    this.#judgedEvents = -1;
    this.publish("started", startedOf(setting));
    void session.play();
  }

  order(text: string): void {
    this.session.order(parseOrder(text));
  }

  /** Pauses before the next event after something remarkable. */
  seek(): void {
    const { story, pacer } = this.session;
    this.#publishStory();
    const { remarkable } = story;
    pacer.seek(() => {
      this.#publishStory();
      return story.remarkable > remarkable;
    });
  }

  search(mutant: string): void {
    if (!MUTANTS.some(({ name }) => name === mutant))
      throw new BadRequest(`The lab's table has no rule "${mutant}"`);
    this.#finder.start(mutant, SEARCH_MOST);
  }

  stopSearch(): void {
    this.#finder.stop();
  }

  /** Everything that a new viewer needs. */
  greet(send: Publish): void {
    const choices = (all: readonly { name: string; wrong?: string }[]) =>
      all.map(({ name, wrong = name }) => ({ name, text: wrong }));
    const hello: Hello = {
      ...{ faults: choices(SIM_FAULTS), mutants: choices(MUTANTS) },
      ...{ versions: VERSIONS, subjects: SUBJECTS },
    };
    send("hello", hello);
    if (this.#session === undefined) return;
    send("started", startedOf(this.#session.setting));
    send("story", this.#lines);
    send("frame", frameOf(this.#session));
    if (this.#finder.view !== undefined) send("search", this.#finder.view);
  }

  /** The run pauses while the page has no viewers. */
  set viewers(viewers: number) {
    this.#viewers = viewers;
    if (viewers === 0 && this.#session?.pacer.playing) this.#session.pacer.pause();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#finder.stop();
    this.#session?.pacer.end();
  }

  #searched(view: SearchView): void {
    this.publish("search", view);
    if (view.seed === undefined) return;
    const query = new URLSearchParams({ seed: view.seed, mutant: view.mutant }).toString();
    void this.start(query).then(() => {
      this.session.pacer.setSpeed(10, true);
      this.session.pacer.play();
    });
  }

  #tick(): void {
    const session = this.#session;
    if (session === undefined || this.#viewers === 0) return;
    this.#publishStory();
    this.#judge(session);
    const frame = frameOf(session);
    const drawn = JSON.stringify(frame);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.publish("frame", frame);
  }

  #publishStory(): void {
    const lines = this.session.story.more();
    if (lines.length === 0) return;
    this.#lines = [...this.#lines, ...lines].slice(-MOST_LINES);
    this.publish("story", lines);
  }

  /** Judges now and then, and pauses when an invariant is broken. */
  #judge(session: PlaySession): void {
    const { events } = session.run.world.kernel;
    const begun = performance.now();
    if (session.judged || events === this.#judgedEvents || begun < this.#judgeAt) return;
    this.#judgedEvents = events;
    const { length } = session.broken;
    session.judge();
    this.#judgeAt = performance.now() + JUDGE_SHARE * (performance.now() - begun);
    if (session.broken.length > length && session.phase === "work") session.pacer.pause();
  }
}

function startedOf({ seed, mutant, options }: Setting): Started {
  const { version, of, members = 1, processes, lanes, names, ttlSeconds: ttl, faults, calls } = options;
  return { seed, mutant, version, of, members, processes, lanes, names, ttl, faults, calls };
}
