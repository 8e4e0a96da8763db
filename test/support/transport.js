// LEASEHOLD_TRANSPORT=http2, or etcd3: tests, lab and bench use that transport wherever they give `connect` none. The library
// itself does not read the variable: src/base/options/default-transport.ts, and what is built of it, is replaced when it is loaded.

import { readFileSync } from "node:fs";

const DEFAULT = /\/options\/default-transport\.[jt]s(\?.*)?$/;
/** The module of the built package that has the library, and that constant in it. */
const PACKAGE = /\/dist\/leasehold-core\.js$/;
const IN_PACKAGE = /^const DEFAULT_TRANSPORT = "\w+";$/m;

/** @returns {"http2" | "etcd3" | undefined} undefined: the library's own default */
export function chosenTransport() {
  const name = process.env["LEASEHOLD_TRANSPORT"];
  if (name === undefined || name === "http2" || name === "etcd3") return name;
  throw new Error(`LEASEHOLD_TRANSPORT is http2 or etcd3, not ${name}`);
}

/** @param {string} id a path or a URL @returns {string | undefined} the source that replaces it */
function replacement(id) {
  const name = chosenTransport();
  if (name === undefined || !DEFAULT.test(id)) return undefined;
  return `export const DEFAULT_TRANSPORT = ${JSON.stringify(name)};\n`;
}

/** For vitest, which loads the sources itself. @type {import("vite").Plugin} */
export const transportPlugin = { name: "transport", enforce: "pre", load: replacement };

/** What a process that loads the sources with tsx, or the built package, needs in its environment, as do its children. */
export function transportEnv() {
  if (chosenTransport() === undefined) return {};
  const hook = `import { register } from "node:module"; register(${JSON.stringify(import.meta.url)});`;
  const option = `--import=data:text/javascript,${encodeURIComponent(hook)}`;
  const given = process.env["NODE_OPTIONS"] ?? "";
  return { NODE_OPTIONS: given.includes(option) ? given : `${given} ${option}`.trim() };
}

/**
 * The hook of `module.register` in such a process.
 * @type {import("node:module").LoadHook}
 */
export async function load(url, context, nextLoad) {
  const name = chosenTransport();
  if (name !== undefined && PACKAGE.test(url)) return loadPackage(url, name);
  const source = replacement(url);
  return source === undefined ? nextLoad(url, context) : { format: "module", source, shortCircuit: true };
}

/** @param {string} url @param {string} name */
function loadPackage(url, name) {
  const text = readFileSync(new URL(url), "utf8");
  if (!IN_PACKAGE.test(text)) throw new Error(`the default transport is not found in ${url}`);
  const source = text.replace(IN_PACKAGE, `const DEFAULT_TRANSPORT = ${JSON.stringify(name)};`);
  return { format: /** @type {const} */ ("module"), source, shortCircuit: true };
}
