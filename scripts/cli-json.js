// `node scripts/cli-json.js`: writes docs/cli.schema.json, the JSON Schema of what the program prints with --json, from
// src/tools/cli/json-types.ts.
import { realpathSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const inRepository = (/** @type {string} */ file) => fileURLToPath(new URL(`../${file}`, import.meta.url));
const TYPES = inRepository("src/tools/cli/json-types.ts");
const SCHEMA = inRepository("docs/cli.schema.json");

/** @typedef {{ readonly [keyword: string]: any }} Schema */

/** @returns {Readonly<Record<string, Schema>>} the schema of each type that the file exports */
export function definitions() {
  const program = ts.createProgram([TYPES], { strict: true, exactOptionalPropertyTypes: true, types: [] });
  const checker = program.getTypeChecker();
  const file = program.getSourceFile(TYPES);
  const exported = checker.getExportsOfModule(/** @type {any} */ (file && checker.getSymbolAtLocation(file)));
  /** @param {ts.Symbol} symbol */
  const described = (symbol) => {
    const text = ts.displayPartsToString(symbol.getDocumentationComment(checker)).replace(/\s+/g, " ");
    return text === "" ? {} : { description: text };
  };
  /** @param {ts.Type} type @returns {Schema} a reference, for a type with a name */
  const schemaOf = (type) => {
    const { name } = type.aliasSymbol ?? type.symbol ?? {};
    return exported.some((symbol) => symbol.name === name) ? { $ref: `#/$defs/${name}` } : bodyOf(type);
  };
  /** @param {ts.Type} type @returns {Schema} */
  function bodyOf(type) {
    const word = checker.typeToString(type).replace(/^(true|false)$/, "boolean");
    if (/^(boolean|string|number|null)$/.test(word)) return { type: word };
    if (type.isStringLiteral()) return { const: type.value };
    if (type.isUnion()) {
      const parts = type.types.filter(({ flags }) => !(flags & ts.TypeFlags.Undefined));
      if (parts.every((part) => part.isStringLiteral())) return { enum: parts.map(({ value }) => value) };
      // Two parts of one schema are the values of a boolean that may be missing.
      const [first, ...more] = new Set(parts.map((part) => JSON.stringify(schemaOf(part))));
      return JSON.parse(more.length === 0 ? `${first}` : `{"anyOf":[${[first, ...more].join()}]}`);
    }
    if (checker.isArrayType(type)) {
      const [items] = checker.getTypeArguments(/** @type {ts.TypeReference} */ (type)).map(schemaOf);
      return { type: "array", items };
    }
    const values = type.getStringIndexType();
    if (values) return { type: "object", additionalProperties: schemaOf(values) };
    const fields = type.getProperties();
    if (fields.length === 0) throw new Error(`${checker.typeToString(type)} has no schema yet`);
    const schemas = fields.map((field) => ({
      ...described(field),
      ...schemaOf(checker.getTypeOfSymbol(field)),
    }));
    return {
      type: "object",
      properties: Object.fromEntries(fields.map(({ name }, n) => [name, schemas[n]])),
      required: fields.filter(({ flags }) => !(flags & ts.SymbolFlags.Optional)).map(({ name }) => name),
    };
  }
  const bodies = exported.map((symbol) => bodyOf(checker.getDeclaredTypeOfSymbol(symbol)));
  return Object.fromEntries(exported.map((it, n) => [it.name, { ...described(it), ...bodies[n] }]));
}

/** @param {Readonly<Record<string, Schema>>} defs @returns {string} docs/cli.schema.json */
export function schema(defs) {
  const $schema = "https://json-schema.org/draft/2020-12/schema";
  return `${JSON.stringify({ $schema, title: "What leasehold prints with --json, a line", $defs: defs }, null, 1)}\n`;
}

if (realpathSync(process.argv[1] ?? "") === fileURLToPath(import.meta.url))
  writeFileSync(SCHEMA, schema(definitions()));
