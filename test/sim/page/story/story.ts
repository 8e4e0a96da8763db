import type { End, Nemesis, Outcome, ServerEvent, Step } from "../../../lab/runner/history.js";
import type { StoryLine } from "../protocol.js";
import { Doings } from "./doings.js";

type Sentence = Omit<StoryLine, "ms">;

/** What an operation that has failed was about. */
const FAILED: Partial<Record<Outcome["f"], string>> = {
  release: "could not release",
  read: "could not read the register of",
  proclaim: "could not proclaim a value in",
  observe: "cannot observe",
};

/** Tells the history of a run in sentences, as far as it has come. */
export class Story {
  readonly doings = new Doings();
  /** Lines that are not minor. */
  remarkable = 0;
  readonly #short: (lock: string) => string;
  #steps = 0;
  #events = 0;

  constructor(
    private readonly run: { readonly history: readonly Step[]; readonly server: readonly ServerEvent[] },
    private readonly places: string,
  ) {
    this.#short = (text) => text.replaceAll(this.places, "");
  }

  /** The lines since the last call, in the order of time. */
  more(): StoryLine[] {
    const { history, server } = this.run;
    const steps = history.slice(this.#steps).map((step) => [step.t, this.#step(step)] as const);
    const events = server.slice(this.#events).map((event) => [event.tSeen, this.#event(event)] as const);
    this.#steps = history.length;
    this.#events = server.length;
    const lines: StoryLine[] = [];
    for (const [t, sentence] of [...steps, ...events].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      if (sentence !== undefined) lines.push({ ms: Number(t) / 1e6, ...sentence });
    this.remarkable += lines.filter(({ tone }) => tone !== "minor").length;
    return lines;
  }

  #event({ type, key, value }: ServerEvent): Sentence | undefined {
    if (type !== "DELETE" || !key.startsWith(this.places)) return undefined;
    const lock = key.slice(0, key.lastIndexOf("/"));
    return { text: `etcd: the entry of ${ownerOf(value)} in ${this.#short(lock)} is deleted`, tone: "minor" };
  }

  #step(step: Step): Sentence | undefined {
    this.doings.add(step);
    switch (step.k) {
      case "invoke":
        if (step.f !== "acquire" && step.f !== "tryAcquire") return undefined;
        return { text: `${step.owner ?? step.p} asks for ${this.#short(step.lock)}`, tone: "minor" };
      case "ok":
        return this.#succeeded(step);
      case "fail":
      case "info":
        return this.#failed(step);
      case "abort":
        return { text: `${step.p} gives up waiting for ${this.#short(step.lock)}`, tone: "minor" };
      case "end":
        return this.#ended(step);
      case "nemesis":
        return this.#broken(step);
      case "crash":
        return { text: `${step.p} crashed: ${step.event}: ${step.err.slice(0, 300)}`, tone: "bad" };
      case "leftovers":
        return { text: leftovers(step), tone: "plain" };
      case "wanted":
        return { text: `${step.p} hears that ${this.#short(step.key)} waits for its lock`, tone: "minor" };
      case "moved":
        return { text: `${step.p} is told that ${this.#short(step.lock)} moves`, tone: "minor" };
      case "asked":
        return { text: `${step.p} asks for ${step.slot} of ${this.#short(step.lock)}`, tone: "minor" };
      case "answered": {
        const what = `${step.slot} of ${this.#short(step.lock)}`;
        return { text: `${step.p} is told of ${what}: ${step.status} ${step.value ?? ""}`, tone: "minor" };
      }
      case "called":
        return { text: `${step.p} calls ${step.f} of ${this.#short(step.lock)}`, tone: "minor" };
      case "returned": {
        const what = `${step.f} of ${this.#short(step.lock)}`;
        return { text: `${step.p} is told of ${what}: ${step.status} ${step.n ?? ""}`, tone: "minor" };
      }
      case "gave-up":
        return { text: `${step.p} gives up ${step.f} of ${this.#short(step.lock)}`, tone: "minor" };
      case "worked":
      case "settled-work":
      case "run":
      case "ran":
      case "told":
      case "viewed":
      case "settled":
      case "asks":
      case "claim":
      case "observed":
      case "unobserved":
      case "stall":
        return undefined;
    }
  }

  #succeeded({ f, p, lock, token, shared, seq }: Outcome): Sentence | undefined {
    const name = this.#short(lock);
    if (f === "acquire" || f === "tryAcquire") {
      const how = shared ? `shares ${name}` : `holds ${name}, fence ${token}`;
      return { text: `${p} ${how}`, tone: "good" };
    }
    if (f === "release") return { text: `${p} has released ${name}`, tone: "plain" };
    if (f === "write") return { text: `${p} wrote ${seq} to the register of ${name}`, tone: "minor" };
    if (f === "open" || f === "close")
      return { text: `${p} ${f === "open" ? "opened" : "closed"} a session`, tone: "minor" };
    return undefined;
  }

  #failed({ f, p, lock, err, said }: Outcome): Sentence {
    const name = this.#short(lock);
    const why = this.#short(said ?? err ?? "no answer");
    if (f === "acquire" || f === "tryAcquire")
      return { text: `${p} did not get ${name}: ${why}`, tone: "minor" };
    if (f === "write")
      return { text: `${p} could not write to the register of ${name}: ${why}`, tone: "plain" };
    if (f === "open" || f === "close")
      return { text: `${p} could not ${f} a session: ${why}`, tone: "plain" };
    return { text: `${p} ${FAILED[f]} ${name}: ${why}`, tone: "plain" };
  }

  #ended({ p, lock, reason }: End): Sentence | undefined {
    if (reason === "released") return undefined;
    return { text: `${p} is notified that it lost ${this.#short(lock)}: ${reason}`, tone: "fault" };
  }

  #broken({ fault, target, on, took }: Nemesis): Sentence {
    const what = `${fault} hits ${this.#short(target)}`;
    if (on) return { text: took === undefined ? what : `${what}, revision ${took.join()}`, tone: "fault" };
    return {
      text: `${fault} of ${this.#short(target)} is over`,
      tone: took === undefined ? "plain" : "minor",
    };
  }
}

function leftovers({ when, keys, leases, watches }: Extract<Step, { k: "leftovers" }>): string {
  const rest = `${keys.length} keys, ${leases.length} leases`;
  if (when === "end") return `All processes have ended. etcd still has ${rest}.`;
  return `All is released, sessions are open. etcd still has ${keys.length} keys and ${watches ?? 0} watches.`;
}

/** The owner in the value of an entry's key. */
export function ownerOf(value: string): string {
  const [, owner] = /"owner"\s*:\s*"([^"]+)"/.exec(value) ?? /"(w\d+\.\d+\/[^"]+)"/.exec(value) ?? [];
  return owner ?? "an unknown owner";
}
