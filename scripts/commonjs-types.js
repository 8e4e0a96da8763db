// The declarations of an entry for `require()`: TypeScript before 5.8 does not let a CommonJS module import those of an ES module.
// They name the same types, so that values pass between CommonJS and ES modules of one program.
import path from "node:path";
import ts from "typescript";

/** @param {readonly string[]} files the .d.ts of each entry @returns {Map<string, string>} the .d.cts of each file */
export function commonJsDeclarations(files) {
  const options = { module: ts.ModuleKind.NodeNext, target: ts.ScriptTarget.ES2022, types: ["node"] };
  const program = ts.createProgram(files, { ...options, noLib: true, skipLibCheck: true });
  return new Map(files.map((file) => [file, declarationsOf(file, exportsOf(program, file))]));
}

/** @param {string} file @param {ReturnType<typeof exportsOf>} exported */
function declarationsOf(file, exported) {
  const module = `./${path.basename(file).replace(/\.d\.ts$/, ".js")}`;
  const from = `"${module}" with { "resolution-mode": "import" }`;
  const values = exported.filter(({ flags }) => flags & ts.SymbolFlags.Value);
  const types = exported.filter(({ flags }) => !(flags & ts.SymbolFlags.Value)).map(({ name }) => name);
  const lines = values.flatMap(({ name, flags }) => [
    `export declare const ${name}: typeof esm.${name};`,
    ...(flags & ts.SymbolFlags.Type ? [`export type ${name} = esm.${name};`] : []),
  ]);
  if (types.length > 0) lines.push(`export type { ${types.join(", ")} } from ${from};`);
  return [`import type * as esm from ${from};`, ...lines, ""].join("\n");
}

/** @param {ts.Program} program @param {string} file */
function exportsOf(program, file) {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  if (module === undefined) throw new Error(`${file} exports nothing`);
  return checker.getExportsOfModule(module).map((symbol) => {
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    const declared = /** @type {ts.InterfaceType} */ (checker.getDeclaredTypeOfSymbol(target));
    // `export type X = esm.X` would need its type parameters.
    if (target.flags & ts.SymbolFlags.Class && declared.typeParameters)
      throw new Error(`${symbol.name} is a generic class`);
    return { name: symbol.name, flags: target.flags };
  });
}
