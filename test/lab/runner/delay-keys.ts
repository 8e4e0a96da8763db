import { delayedBy } from "../../../src/keys.js";
import type { Run, ServerEvent } from "./history.js";

/** Delay keys have the place in the queue of their entries, and are no entries. */
export function splitEvents(events: readonly ServerEvent[]): Required<Pick<Run, "server" | "delayKeys">> {
  const idOf = (key: string | undefined, create: bigint): string => `${create} ${key ?? ""}`;
  const put = new Set(events.map(({ key, create }) => idOf(key, create)));
  const isDelay = ({ key, create }: ServerEvent): boolean => put.has(idOf(delayedBy(key), create));
  return { server: events.filter((event) => !isDelay(event)), delayKeys: events.filter(isDelay) };
}
