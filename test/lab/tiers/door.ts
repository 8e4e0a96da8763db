import type { Pair } from "../../support/fixtures/certificates.js";
import { startTlsFront, type TlsFront } from "../../support/proxies/tls-front.js";

/** What an address of the workers leads to: a member, or whatever replaces it. */
export class Door {
  readonly #member: number;
  #instead: number | undefined;
  #pair: Pair | undefined;
  #front: TlsFront | undefined;

  /** With a certificate, it uses TLS. */
  static async open(memberPort: number, pair?: Pair): Promise<Door> {
    const door = new Door(memberPort, pair);
    if (pair !== undefined) door.#front = await startTlsFront(() => door.#behind, pair);
    return door;
  }

  private constructor(memberPort: number, pair: Pair | undefined) {
    this.#member = memberPort;
    this.#pair = pair;
  }

  get port(): number {
    return this.#front?.port ?? this.#behind;
  }

  get #behind(): number {
    return this.#instead ?? this.#member;
  }

  /** Where new connections lead; undefined: to the member again. */
  lead(port: number | undefined): void {
    this.#instead = port;
  }

  /** The certificate for new connections; undefined: its own certificate again. */
  show(pair = this.#pair): void {
    if (pair !== undefined) this.#front?.show(pair);
  }

  async stop(): Promise<void> {
    await this.#front?.stop();
  }
}
