import { byId, make, setText } from "../../../../src/tools/ui/page/dom.js";
import type { Choice, Frame, Hello, SearchView, Started } from "../protocol.js";
import { order, post } from "./post.js";

const input = (id: string): HTMLInputElement => byId<HTMLInputElement>(id);

/** What the next run shall be, and the search for a seed. */
export class SettingForm {
  #searching = false;

  constructor() {
    byId("setting").addEventListener("submit", (event) => {
      event.preventDefault();
      void post("/start", { query: queryOf(true) });
    });
    byId("own").addEventListener("click", () => void post("/start", { query: queryOf(false) }));
    byId("find").addEventListener("click", () => {
      if (this.#searching) void post("/stop");
      else void post("/search", { mutant: input("mutant").value });
    });
    byId("mutant").addEventListener("change", () => this.#enable());
    byId("planned").addEventListener("change", countPlanned);
  }

  offer({ faults, mutants, versions, subjects }: Hello): void {
    const options = (choices: readonly string[]) =>
      choices.map((each) => make("option", { value: each }, each));
    byId("of").replaceChildren(...options(subjects));
    byId("version").replaceChildren(...options(versions));
    byId("mutant").replaceChildren(
      make("option", { value: "" }, "none: the code as it is"),
      ...mutants.map(({ name, text }) => make("option", { value: name }, `${name}: ${text}`)),
    );
    byId("faults").replaceChildren(...faults.map(chip));
    byId("planned").replaceChildren(
      ...faults.map(({ name }) => make("label", {}, make("input", { type: "checkbox", value: name }), name)),
    );
  }

  fill(started: Started): void {
    const { seed, of, version, members, processes, lanes, names, ttl, mutant, faults } = started;
    const values = {
      seed,
      of,
      version,
      "members-count": members,
      "processes-count": processes,
      lanes,
      names,
      ttl,
      mutant,
    };
    for (const [id, value] of Object.entries(values)) input(id).value = String(value);
    for (const box of byId("planned").querySelectorAll("input")) box.checked = faults.includes(box.value);
    countPlanned();
    this.#enable();
    const rule = mutant === "" ? "" : `, sabotaged: ${mutant}`;
    setText(byId("scope"), `seed ${seed}, ${of}, etcd ${version}, TTL ${ttl} s${rule}`);
  }

  repeat({ query }: Frame): void {
    setText(byId("command"), `npm run sim -- --play '${query}'`);
    if (location.search !== `?${query}`) history.replaceState(null, "", `?${query}`);
  }

  searched({ mutant, tried, most, seed, broken, over }: SearchView): void {
    this.#searching = !over;
    const found = `${mutant}: seed ${seed} fails: ${broken ?? ""}`;
    const ended = `${mutant}: none of ${tried} seeds fails`;
    setText(
      byId("search"),
      seed !== undefined ? found : over ? ended : `${mutant}: ${tried} of ${most} seeds tried`,
    );
    this.#enable();
  }

  #enable(): void {
    setText(byId("find"), this.#searching ? "Stop the search" : "Play the seed that fails");
    byId<HTMLButtonElement>("find").disabled = !this.#searching && input("mutant").value === "";
  }
}

function chip({ name }: Choice): HTMLButtonElement {
  const button = make("button", { type: "button" }, name);
  button.addEventListener("click", () => order("fault", name));
  return button;
}

const planned = (): string[] =>
  [...byId("planned").querySelectorAll("input")].filter(({ checked }) => checked).map(({ value }) => value);

function countPlanned(): void {
  setText(byId("planned-count"), String(planned().length));
}

/** `chosen`: with all fields of the form, not only with the seed and the rule. */
function queryOf(chosen: boolean): string {
  const query = new URLSearchParams({ seed: input("seed").value });
  if (input("mutant").value !== "") query.set("mutant", input("mutant").value);
  if (!chosen) return query.toString();
  for (const id of ["of", "version", "lanes", "names", "ttl"]) query.set(id, input(id).value);
  query.set("members", input("members-count").value);
  query.set("processes", input("processes-count").value);
  query.set("faults", planned().join());
  return query.toString();
}
