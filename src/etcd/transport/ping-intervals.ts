/** Go's gRPC servers allow one ping in five minutes by default. */
const LONGEST_MS = 320_000;

/** How often connections are pinged while a stream is open. A host that asks for fewer pings gets fewer. */
export class PingIntervals {
  readonly #byHost = new Map<string, number>();

  /** `firstMs`: the interval that the user configured. */
  constructor(private readonly firstMs: number) {}

  of(host: string): number {
    return this.#byHost.get(host) ?? this.firstMs;
  }

  /** `host` asked for fewer pings on a connection that pinged every `pingMs`. */
  tooShort(host: string, pingMs: number): void {
    this.#byHost.set(host, Math.max(this.of(host), Math.min(LONGEST_MS, 2 * pingMs)));
  }
}
