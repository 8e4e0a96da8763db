import type { ServerEvent } from "../runner/history.js";
import type { Facts } from "./facts.js";
import { grouped } from "./grouped.js";

/** Who led from a revision on; without a token: nobody. */
export interface Led {
  readonly token: bigint | undefined;
  /** Modification revision of its key. */
  readonly rev: bigint | undefined;
  readonly value: string | undefined;
  readonly seen: bigint;
}

/** Per name: all leaders and their values as the server had them, one after the other, and when nobody led. */
export function leadersOf({ server, setting }: Facts): ReadonlyMap<string, readonly Led[]> {
  const mine = server.filter(({ key }) => key.startsWith(setting.locks));
  const byName = grouped(mine, ({ key }) => key.slice(0, key.lastIndexOf("/")));
  return new Map([...byName].map(([name, events]) => [name, leadersIn(events)]));
}

function leadersIn(events: readonly ServerEvent[]): Led[] {
  // In the order of their create revisions: that of a new key is above all others.
  const living = new Map<string, ServerEvent>();
  const found: Led[] = [];
  for (const [, together] of grouped(events, ({ rev }) => String(rev))) {
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
