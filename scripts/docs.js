// `npm run docs`: the reference of every entry of the package, as HTML in docs-out/. A warning is an error.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Application } from "typedoc";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

/**
 * Types that the reference mentions and the package does not export: each is fully shown where it is used.
 * @type {Readonly<Record<string, string>>}
 */
const NOT_EXPORTED = {
  TracingEvent: "the five names of an event of a TracingChannel, which belong to Node.js",
  RefusalReason: "the type of one field, EtcdRefusedError.reason, whose values docs/troubleshooting.md lists",
  WebLockMode: "the standard's LockMode, which lib.dom declares under that name",
  HoldJson: "the shape of one JSON value, which docs/api.md describes",
  MultiLockJson: "the same of several locks",
  StateListener: "the listener of one event, in the form of addEventListener",
};

/** @returns {string[]} the source file of each entry in package.json */
function entryPoints() {
  const { exports } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8"));
  const declared = Object.values(exports).flatMap((entry) =>
    typeof entry === "object" ? [entry.types] : [],
  );
  return declared.map((file) => file.replace(/^\.\/dist\/(.*)\.d\.ts$/, `${ROOT}src/$1.ts`));
}

const app = await Application.bootstrap({
  name: "leasehold",
  entryPoints: entryPoints(),
  tsconfig: `${ROOT}tsconfig.json`,
  out: `${ROOT}docs-out`,
  readme: "none",
  excludeInternal: true,
  excludePrivate: true,
  disableSources: true,
  validation: { invalidLink: true, invalidPath: true, notExported: true },
  intentionallyNotExported: Object.keys(NOT_EXPORTED),
  treatWarningsAsErrors: true,
  treatValidationWarningsAsErrors: true,
});
const project = await app.convert();
if (project !== undefined) {
  app.validate(project);
  await app.generateOutputs(project);
}
process.exitCode = project !== undefined && !app.logger.hasErrors() && !app.logger.hasWarnings() ? 0 : 1;
