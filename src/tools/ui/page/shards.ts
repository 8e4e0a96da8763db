import type { DetailMessage, ShardPicture, ShardSpan } from "../protocol.js";
import { count, draw, duration, make, number, setText, shown } from "./dom.js";
import { hrefOf } from "./table.js";
import { AXIS, cut, gridOf, type View, xOf } from "./timeline.js";

/** The colors of `page.css`; whoever has none is one of the others. */
const COLORS = 8;
const LANE = 12;
const GAP = 2;
/** Of a member's lane, which shows how many shards it has. */
const HIGH_LANE = 34;
/** A narrower bar has no room for its member's number. */
const LEAST_MARKED = 22;

interface Look {
  /** Such as `m3`. */
  readonly style: string;
  /** The number of the member, which tells it apart without its color. */
  readonly mark: string;
  readonly name: string;
}

/** The shards of a group over time: a lane for each shard in the colors of its owners, or for each member with its number of shards. */
export class ShardsByMember {
  readonly #picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  readonly #legend = make("ul", { class: "shard-members" });
  readonly #body = make("tbody");
  readonly #table = tableOf(this.#body);
  readonly #colors = new Map<string, number>();
  readonly #title = make("h3", {}, "Shards by member");
  /** Empty, if there are none. */
  readonly element = make("div");

  constructor() {
    this.#picture.setAttribute("class", "picture");
    this.#picture.setAttribute("role", "img");
  }

  show({ name, shards, now: at }: DetailMessage, now: number): void {
    if (shards === null) {
      this.#colors.clear();
      return this.element.replaceChildren();
    }
    if (this.element.children.length === 0)
      this.element.append(this.#title, this.#picture, this.#legend, this.#table);
    const looks = this.#looksOf(shards);
    const width = Math.max(240, this.#picture.clientWidth || 360);
    const { spanMs, lanes, loads } = shards;
    if (lanes) {
      const view = { now, width, label: 28, spanMs };
      const drawn = lanes.flatMap((spans, shard) => drawLane(spans, shard, { view, looks }));
      this.#draw(shards, { view, height: lanes.length * LANE + AXIS, drawn });
    } else if (loads) {
      const view = { now: at, width, label: Math.min(150, Math.round(width * 0.3)), spanMs };
      const most = Math.max(1, ...loads.flat());
      const drawn = loads.flatMap((load, n) => drawLoad(load, n, { view, most, look: looks[n] }));
      this.#draw(shards, { view, height: loads.length * HIGH_LANE + AXIS, drawn });
    }
    this.#showLegend(shards, looks);
    this.#table.hidden = lanes === null;
    if (lanes) showOwners(this.#body, { lanes, looks, now, group: name.replace(/\/members$/, "") });
  }

  /** A member keeps its color while it is there. */
  #looksOf({ members, others }: ShardPicture): Look[] {
    const names = new Set(members.map(({ name }) => name));
    for (const name of this.#colors.keys()) if (!names.has(name)) this.#colors.delete(name);
    const looks = members.map(({ name }) => {
      const taken = new Set(this.#colors.values());
      const free = Array.from({ length: COLORS }, (_, n) => n).find((n) => !taken.has(n)) ?? 0;
      const color = this.#colors.get(name) ?? free;
      this.#colors.set(name, color);
      return { style: `m${color}`, mark: String(color + 1), name: shown(name) };
    });
    return [...looks, { style: "others", mark: "+", name: count(others.members, "other member") }];
  }

  #draw(shards: ShardPicture, { view, height, drawn }: Drawing): void {
    this.#picture.setAttribute("viewBox", `0 0 ${view.width} ${height}`);
    this.#picture.setAttribute("height", String(height));
    this.#picture.setAttribute("aria-label", summaryOf(shards));
    this.#picture.replaceChildren(...gridOf(view, height), ...drawn);
  }

  #showLegend({ members, others }: ShardPicture, looks: readonly Look[]): void {
    const all = others.members > 0 ? [...members, others] : members;
    while (this.#legend.children.length > all.length) this.#legend.lastElementChild?.remove();
    for (const [n, { shards }] of all.entries()) {
      const look = looks[n];
      if (!look) continue;
      const line =
        this.#legend.children[n] ??
        this.#legend.appendChild(
          make("li", {}, make("span", { "aria-hidden": "true" }), make("bdi"), make("span")),
        );
      const [swatch, name, has] = line.children;
      if (!swatch || !name || !has) continue;
      swatch.className = `swatch ${look.style}`;
      setText(swatch, look.mark);
      setText(name, look.name);
      setText(has, count(shards, "shard"));
    }
  }
}

interface Drawing {
  readonly view: View;
  readonly height: number;
  readonly drawn: readonly SVGElement[];
}

function summaryOf({ count: shards, members, others, spanMs, moves, lanes }: ShardPicture): string {
  const owners = count(members.length + others.members, "member");
  const below =
    lanes === null ? "The list below has their present numbers." : "The table below has the same as text.";
  return `${count(shards, "shard")} of ${owners} in the last ${duration(spanMs)}: ${count(moves, "move")}. ${below}`;
}

function drawLane(
  spans: readonly ShardSpan[],
  shard: number,
  { view, looks }: { readonly view: View; readonly looks: readonly Look[] },
): SVGElement[] {
  const y = shard * LANE;
  const label = draw("text", { x: 0, y: y + LANE - GAP, class: "shard" }, String(shard));
  const bars = spans.flatMap(([member, from, to]) => {
    const look = looks[member] ?? looks.at(-1);
    if (!look || (to ?? view.now) < view.now - view.spanMs) return [];
    const [x, right] = [xOf(from, view), xOf(to ?? view.now, view)];
    const width = Math.max(1, right - x);
    const bar = draw("rect", { x, y, width, height: LANE - GAP, class: `owned ${look.style}` });
    const title = `shard ${shard}: ${look.name}, ${duration((to ?? view.now) - from)}`;
    bar.append(draw("title", {}, title));
    if (width < LEAST_MARKED) return [bar];
    return [bar, draw("text", { x: x + 4, y: y + LANE - GAP - 1.5, class: "mark" }, look.mark)];
  });
  return [label, ...bars];
}

function drawLoad(
  load: readonly number[],
  lane: number,
  { view, most, look }: { readonly view: View; readonly most: number; readonly look: Look | undefined },
): SVGElement[] {
  if (!look) return [];
  const bottom = (lane + 1) * HIGH_LANE - GAP;
  const step = (view.width - view.label - 1) / Math.max(1, load.length - 1);
  const points = load.map(
    (shards, n) => `${view.label + n * step},${bottom - (shards * (HIGH_LANE - 2 * GAP)) / most}`,
  );
  const ends = [`${view.label},${bottom}`, ...points, `${view.width - 1},${bottom}`];
  const area = draw("polygon", { points: ends.join(" "), class: `owned ${look.style}` });
  area.append(draw("title", {}, `${look.name}: ${count(load.at(-1) ?? 0, "shard")}`));
  const text = { x: 0, y: bottom - 10, class: "lane" };
  return [area, draw("text", text, cut(`${look.mark} ${look.name}`, view.label))];
}

function tableOf(body: HTMLElement): HTMLElement {
  const titles = ["Shard", "Member", "For"].map((title) => make("th", { scope: "col" }, title));
  const table = make("table", { class: "history" }, make("thead", {}, make("tr", {}, ...titles)), body);
  return make("details", {}, make("summary", {}, "Owners as a table"), table);
}

interface Owners {
  readonly lanes: readonly (readonly ShardSpan[])[];
  readonly looks: readonly Look[];
  readonly now: number;
  readonly group: string;
}

function showOwners(body: HTMLElement, { lanes, looks, now, group }: Owners): void {
  while (body.children.length > lanes.length) body.lastElementChild?.remove();
  for (const [shard, spans] of lanes.entries()) {
    const last = spans.at(-1);
    const owner = last?.[2] === null ? last : undefined;
    const row = body.children[shard] ?? body.appendChild(rowOf(shard, group));
    const [, member, age] = row.children;
    const name = owner ? (looks[owner[0]] ?? looks.at(-1))?.name : "nobody";
    if (member?.firstElementChild) setText(member.firstElementChild, name ?? "");
    if (age) setText(age, owner ? duration(now - owner[1]) : "–");
  }
}

const rowOf = (shard: number, group: string): HTMLElement =>
  make(
    "tr",
    {},
    make("th", { scope: "row" }, make("a", { href: hrefOf(`${group}/shard/${shard}`) }, number(shard))),
    make("td", {}, make("bdi")),
    make("td"),
  );
