import type { ServerResponse } from "node:http";
import type { Clock, Timer } from "../async/clock.js";
import type { Cluster } from "../index.js";
import { Detail } from "./detail.js";
import { EventStream } from "./event-stream.js";
import { Overview } from "./overview.js";
import { Rows } from "./rows.js";
import type { OpenSource, Source } from "./source.js";

/** Of one page object. Each open tab has one stream, or two while it shows a queue. */
const MAX_STREAMS = 64;
const CHECK_MS = 5000;

/** What the streams are made of. */
export interface HubSetting {
  readonly cluster: Cluster;
  readonly clock: Clock;
  readonly prefix: string;
  readonly openSource: OpenSource;
}

/** All streams of one page, and the one source that feeds them. */
export class Hub {
  readonly #rows: Rows;
  readonly #overview: Overview;
  readonly #details = new Map<string, Detail>();
  readonly #streams = new Set<EventStream>();
  readonly #source: Source;
  #timer: Timer | undefined;
  #closed = false;

  constructor(private readonly setting: HubSetting) {
    this.#rows = new Rows(setting.clock, (name) => this.#changed(name));
    this.#overview = new Overview(this.#rows, setting);
    this.#source = setting.openSource(this.#rows);
  }

  /** Whether another stream would be one too many. */
  get full(): boolean {
    return this.#closed || this.#streams.size >= MAX_STREAMS;
  }

  /** @param release whether this viewer may release */
  openOverview(response: ServerResponse, release: boolean): void {
    this.#overview.add(this.#stream(response), release);
  }

  openDetail(response: ServerResponse, name: string): void {
    const { cluster, clock } = this.setting;
    const reading = { cluster, clock, rows: this.#rows };
    const detail = this.#details.get(name) ?? new Detail(reading, name, () => this.#details.delete(name));
    this.#details.set(name, detail);
    detail.add(this.#stream(response));
  }

  close(): void {
    this.#closed = true;
    this.#source.close();
    this.#overview.close();
    this.#timer?.cancel();
    for (const stream of this.#streams) stream.close();
  }

  #changed(name: string | undefined): void {
    this.#overview.changed(name);
    if (name !== undefined) this.#details.get(name)?.changed();
  }

  #stream(response: ServerResponse): EventStream {
    const stream = new EventStream(response, this.setting.clock);
    this.#streams.add(stream);
    stream.onClose(() => this.#streams.delete(stream));
    this.#check();
    return stream;
  }

  #check(): void {
    this.#timer ??= this.setting.clock.after(CHECK_MS, () => {
      this.#timer = undefined;
      for (const stream of this.#streams) stream.check();
      if (this.#streams.size > 0) this.#check();
    });
  }
}
