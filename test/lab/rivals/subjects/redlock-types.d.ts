// redlock's `exports` do not expose its own types; this declares what is used of them.
declare module "redlock" {
  import type { Redis } from "ioredis";

  export interface Settings {
    readonly driftFactor: number;
    readonly retryCount: number;
    readonly retryDelay: number;
    readonly retryJitter: number;
    readonly automaticExtensionThreshold: number;
  }
  export class ExecutionError extends Error {}
  export default class Redlock {
    constructor(clients: Iterable<Redis>, settings?: Partial<Settings>);
    quit(): Promise<void>;
    using(
      resources: string[],
      durationMs: number,
      settings: Partial<Settings>,
      routine: (signal: AbortSignal) => Promise<void>,
    ): Promise<void>;
  }
}
