/** A stream of server-sent events that connects again, and is closed while nobody sees the page. */
export class Connection {
  #events: EventSource | undefined;
  #timer: number | undefined;
  #closed = false;

  constructor(
    private readonly url: string,
    private readonly handlers: Readonly<Record<string, (data: unknown) => void>>,
    private readonly onState: (state: "live" | "lost") => void,
  ) {
    document.addEventListener("visibilitychange", this.#check);
    this.#check();
  }

  close(): void {
    this.#closed = true;
    document.removeEventListener("visibilitychange", this.#check);
    this.#end();
  }

  readonly #check = (): void => {
    if (document.hidden) this.#end();
    else if (this.#events === undefined) this.#open();
  };

  #open(): void {
    this.#end();
    if (this.#closed || document.hidden) return;
    const events = new EventSource(this.url);
    this.#events = events;
    for (const [name, handle] of Object.entries(this.handlers))
      events.addEventListener(name, ({ data }: MessageEvent<string>) => handle(JSON.parse(data)));
    events.addEventListener("open", () => this.onState("live"));
    events.addEventListener("error", () => {
      this.onState("lost");
      // The browser's own attempts end with an answer that is no stream, as a proxy gives it during a restart.
      this.#end();
      this.#timer = window.setTimeout(() => this.#open(), 500 + Math.random() * 1000);
    });
  }

  #end(): void {
    clearTimeout(this.#timer);
    this.#events?.close();
    this.#events = undefined;
  }
}
