import { byId, make, setAttribute, setText, shown } from "../../../../src/tools/ui/page/dom.js";
import type { EntryView, Frame } from "../protocol.js";
import { order } from "./post.js";

interface Row {
  readonly element: HTMLLIElement;
  readonly place: HTMLElement;
  readonly role: HTMLElement;
  readonly bar: HTMLElement;
  readonly track: HTMLElement;
  readonly left: HTMLElement;
  readonly remove: HTMLButtonElement;
}

interface Queue {
  readonly element: HTMLElement;
  readonly count: HTMLElement;
  readonly list: HTMLElement;
}

/** The entries of each name, in create order, with what is left of their leases. */
export class Queues {
  readonly #queues = new Map<string, Queue>();
  readonly #rows = new Map<string, Row>();

  clear(): void {
    this.#queues.clear();
    this.#rows.clear();
    byId("queues").replaceChildren();
  }

  set({ queues, phase, revision, leases, watches }: Frame): void {
    setText(byId("etcd"), `revision ${revision}, ${leases} leases, ${watches} watches`);
    const keys = new Set(queues.flatMap(({ entries }) => entries.map(({ key }) => key)));
    for (const [key, { element }] of this.#rows) if (!keys.has(key)) this.#forget(key, element);
    for (const { name, entries } of queues) {
      const { list, count } = this.#queues.get(name) ?? this.#newQueue(name);
      setText(count, entries.length === 0 ? "free" : "");
      entries.forEach((entry, place) => {
        const row = this.#rows.get(entry.key) ?? this.#newRow(entry);
        if (list.children[place] !== row.element)
          list.insertBefore(row.element, list.children[place] ?? null);
        show(row, entry, place);
        row.remove.disabled = phase !== "work";
      });
    }
  }

  #forget(key: string, element: HTMLElement): void {
    element.remove();
    this.#rows.delete(key);
  }

  #newQueue(name: string): Queue {
    const count = make("span", { class: "soft" });
    const list = make("ol", { "aria-label": `Queue of ${name}` });
    const element = make("div", { class: "queue" }, make("h3", {}, `${shown(name)} `, count), list);
    const queue = { element, count, list };
    this.#queues.set(name, queue);
    byId("queues").append(element);
    return queue;
  }

  #newRow({ key, owner, fence }: EntryView): Row {
    const [place, role, bar, left] = [
      make("span", { class: "soft" }),
      make("span"),
      make("span"),
      make("span"),
    ];
    const track = make("span", { class: "track" }, bar);
    const label = `Delete the key of ${shown(owner)}`;
    const remove = make("button", { type: "button", "aria-label": label, title: label }, "Delete");
    remove.addEventListener("click", () => order("delete", key));
    const element = make(
      "li",
      { class: "entry" },
      ...[place, make("span", { class: "who" }, shown(owner), " ", role)],
      make("span", { class: "soft fence" }, `fence ${fence}`),
      make("span", { class: "left" }, track, left),
      make("span", { class: "acts" }, remove),
    );
    left.className = "soft";
    role.className = "soft";
    const row = { element, place, role, bar, track, left, remove };
    this.#rows.set(key, row);
    return row;
  }
}

function show(row: Row, { leftMs, ttlMs, granted }: EntryView, place: number): void {
  setAttribute(row.element, "data-granted", granted ? "yes" : "no");
  setText(row.place, String(place + 1));
  setText(row.role, granted ? "holds" : place === 0 ? "not notified yet" : "waits");
  const part = ttlMs > 0 ? leftMs / ttlMs : 0;
  row.bar.style.width = `${(100 * part).toFixed(1)}%`;
  setAttribute(row.track, "data-low", part < 0.35 ? "yes" : "no");
  setText(row.left, `${(leftMs / 1000).toFixed(1)} s`);
  setAttribute(row.left, "title", "left of the lease");
}
