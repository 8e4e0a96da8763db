import { credentialsChannel } from "../base/telemetry/channels.js";
import { type CredentialsMessage, KEPT } from "../base/telemetry/messages.js";
import { withJson } from "../base/telemetry/publish.js";
import { tellOutside } from "../base/util/own-context.js";
import { isError } from "../base/util/realm.js";

/**
 * The certificates of a cluster, or its user and password. Certificates are read for each new connection, so that exchanged files are in use without a new cluster. If
 * that fails, as between the writes of two files that belong together, those that were read last stay in use.
 */
export class CurrentCredentials<T> {
  readonly #read: () => T;
  #last: T;
  /** Why they could not be read, as it was published last. */
  #problem: string | undefined;

  /** Throws what `read` does. */
  constructor(
    private readonly option: CredentialsMessage["option"],
    read: () => T,
    private readonly hosts: readonly string[],
  ) {
    this.#read = read;
    this.#last = read();
  }

  /** Those that were read last. */
  get last(): T {
    return this.#last;
  }

  get current(): T {
    try {
      this.#last = tellOutside(this.#read);
      if (this.#problem !== undefined) this.#tell(undefined);
    } catch (thrown) {
      const error = isError(thrown) ? thrown : new Error(String(thrown));
      if (error.message !== this.#problem) this.#tell(error);
    }
    return this.#last;
  }

  #tell(error: Error | undefined): void {
    const { hosts, option } = this;
    this.#problem = error?.message;
    if (credentialsChannel.hasSubscribers)
      tellOutside(() => credentialsChannel.publish(withJson({ hosts, option, error })));
    else if (error !== undefined)
      process.emitWarning(
        `${option}() has failed; leasehold keeps using the previous ${KEPT[option]}: ${error.message}`,
        { type: "LeaseholdWarning", code: "CREDENTIALS_KEPT" },
      );
  }
}
