// What runs in the browser: `index.html`, `page.css` and these modules, which `scripts/build.js` joins to one script.
// `tsconfig.page.json` checks it with the types of the DOM and without those of Node. Only the rows of the present page of
// the table exist in the document, and an update changes only cells that differ; the focus stays where it is. After a lost
// connection the page connects again, and the first event has the whole state.
import type { ChangeMessage, FullMessage } from "../protocol.js";
import { Connection } from "./connection.js";
import { Detail } from "./detail.js";
import { announce, byId, duration, setAttribute, setText, shown } from "./dom.js";
import { listenForRelease } from "./people.js";
import { Store } from "./store.js";
import { hrefOf, Table } from "./table.js";

const TICK_MS = 1000;

// The address bar and the history keep no token: a cookie has it.
if (location.search !== "") history.replaceState(null, "", `${location.pathname}${location.hash}`);

const store = new Store();
const table = new Table(store);
const detail = new Detail(store);

/** Thousands of rows come in many pages: the table is drawn after the last one. */
function show({ more }: { readonly more: boolean }): void {
  if (more) return;
  table.render();
  setText(byId("scope"), store.prefix === "" ? "all names" : `${shown(store.prefix)}…`);
  setText(byId("etcd"), store.hosts.map(shown).join(", "));
  showState();
  byId("problem").hidden = store.problem === null;
  setText(byId("problem"), store.problem ?? "");
}

function route(): void {
  const left = table.current;
  table.current = queueOf(location.hash);
  detail.open(table.current);
  table.render();
  if (table.current === undefined && left !== undefined)
    document.querySelector<HTMLElement>(`a[href="${CSS.escape(hrefOf(left))}"]`)?.focus();
}

/** The name in an address such as `#queue=jobs%2Fnightly`. */
function queueOf(hash: string): string | undefined {
  const [, name = ""] = /^#queue=(.+)$/.exec(hash) ?? [];
  try {
    return decodeURIComponent(name) || undefined;
  } catch {
    return undefined;
  }
}

let isLost = false;
/** When the connection to the server ended, by this clock. */
let lostAt = 0;

function linked(state: "live" | "lost"): void {
  if (isLost && state === "live") announce("Connected again");
  if (!isLost) lostAt = Date.now();
  isLost = state === "lost";
  showState();
}

/** Rows that may be old are never called live. */
function showState(): void {
  const { problem, goodAt } = store;
  const state = isLost ? "lost" : problem === null ? "live" : "stale";
  const texts = {
    live: "Live",
    stale: `Stale for ${duration(store.now() - goodAt)}`,
    lost: `Connection lost ${duration(Date.now() - lostAt)} ago, trying again`,
  };
  setText(byId("link"), texts[state]);
  setAttribute(byId("link"), "data-state", state);
  document.body.classList.toggle("old", state !== "live");
  const title =
    state === "live" ? table.title : `${state === "stale" ? "Stale" : "Connection lost"} · ${table.title}`;
  if (document.title !== title) document.title = title;
}

listenForRelease();
addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("find").focus();
  }
  if (event.key === "Escape" && !typing && !byId<HTMLDialogElement>("confirm").open) location.hash = "";
});
setInterval(() => {
  if (document.hidden) return;
  showState();
  table.tick();
  detail.tick();
}, TICK_MS);

new Connection(
  "events",
  {
    full: (data) => {
      store.fill(data as FullMessage);
      show(data as FullMessage);
    },
    change: (data) => {
      store.change(data as ChangeMessage);
      show(data as ChangeMessage);
    },
  },
  linked,
);
route();
