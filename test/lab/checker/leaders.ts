import type { ServerEvent } from "../runner/history.js";
import type { Facts } from "./facts.js";
import { grouped } from "./grouped.js";

/** The leader from a revision on; without a token, there is no leader. */
export interface Led {
  readonly token: bigint | undefined;
  /** The modification revision of its key. */
  readonly rev: bigint | undefined;
  readonly value: string | undefined;
  readonly seen: bigint;
}

/** Per name: all leaders and their values in the order in which the server had them, and the times without a leader. */
export function leadersOf({ server, setting }: Facts): ReadonlyMap<string, readonly Led[]> {
  const mine = server.filter(({ key }) => key.startsWith(setting.locks));
  const byName = grouped(mine, ({ key }) => key.slice(0, key.lastIndexOf("/")));
  return new Map([...byName].map(([name, events]) => [name, leadersIn(events)]));
}

function leadersIn(events: readonly ServerEvent[]): Led[] {
  // In the order of their create revisions: a new key has the highest one.
  const living = new Map<string, ServerEvent>();
  const found: Led[] = [];
  for (const [, together] of grouped(events, ({ rev }) => rev)) {
    for (const event of together) {
      if (event.type === "DELETE") living.delete(event.key);
      else living.set(event.key, event);
    }
    const [first] = living.values();
    const last = found.at(-1);
    if (last && last.token === first?.create && last.rev === first?.rev) continue;
    const seen = together[0]?.tSeen ?? 0n;
    found.push({ token: first?.create, rev: first?.rev, value: first?.value, seen });
  }
  return found;
}
