import type { CheckedConnect, CheckedCredentials } from "../options/connect.js";
import { credentialsChannel } from "../telemetry/channels.js";
import { withJson } from "../telemetry/publish.js";
import { tellOutside } from "../util/own-context.js";
import { isError } from "../util/realm.js";

/**
 * The certificates of a cluster. They are read for each new connection, so that exchanged files are in use without a new cluster. If
 * that fails, as between the writes of two files that belong together, those that were read last stay in use.
 */
export class CurrentCredentials {
  readonly #read: () => CheckedCredentials;
  #last: CheckedCredentials;
  /** Why they could not be read, as it was published last. */
  #problem: string | undefined;

  /** Throws what `read` does. */
  constructor(
    read: NonNullable<CheckedConnect["credentials"]>,
    private readonly hosts: readonly string[],
  ) {
    this.#read = read;
    this.#last = read();
  }

  /** Those that were read last. */
  get last(): CheckedCredentials {
    return this.#last;
  }

  get current(): CheckedCredentials {
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
    this.#problem = error?.message;
    if (credentialsChannel.hasSubscribers)
      tellOutside(() => credentialsChannel.publish(withJson({ hosts: this.hosts, error })));
    else if (error !== undefined)
      process.emitWarning(`leasehold uses its last credentials: ${error.message}`, {
        type: "LeaseholdWarning",
        code: "CREDENTIALS_KEPT",
      });
  }
}
