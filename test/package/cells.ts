// What a user may do with the package, each tried in a clean folder.
import { cp, readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { bundle, commonJs, domTestFile, esModule, nextProject, testFile, visit } from "./programs.js";
import { Folder, NotRun } from "./shell.js";
import { weigh } from "./weights.js";

const HERE = fileURLToPath(new URL("./", import.meta.url));
const TYPES = path.join(HERE, "..", "types");
const NODES = ["20.19.0", "20", "22", "24", "26"];
const TYPESCRIPTS = ["5.4", "5.5", "5.6", "5.7", "5.8", "5.9", "6.0", "7.0"];

export interface Cell {
  readonly name: string;
  /** @returns its version, or a text for the table @throws {NotRun | Error} */
  readonly run: () => Promise<string>;
}
export interface World {
  readonly tarball: string;
  readonly hosts: string;
  readonly quick: boolean;
}

const once = <T>(make: () => Promise<T>): (() => Promise<T>) => {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
};

function assertWorks(said: string): void {
  if (!said.includes("works")) throw new Error(`it did not end: ${said}`);
}

/** Programs for the runtimes, and leasehold alone. */
const plainProject = (world: World) =>
  once(async () => {
    const folder = await Folder.create("plain", {
      "empty.mjs": "",
      "module.mjs": esModule("matrix/module"),
      "commonjs.cjs": commonJs("matrix/commonjs"),
    });
    await folder.install(world.tarball);
    return folder;
  });

function runtimes({ hosts, quick }: World, plain: () => Promise<Folder>): Cell[] {
  const env = { HOSTS: hosts };
  const tools = once(async () => {
    const folder = await Folder.create("runtimes");
    await folder.install("bun@1", "deno@2");
    return path.join(folder.path, "node_modules", ".bin");
  });
  const cell = (name: string, command: () => Promise<readonly string[]>): Cell[] =>
    [
      { file: "module.mjs", how: "import" },
      { file: "commonjs.cjs", how: "require()" },
    ].map(({ file, how }) => ({
      name: `${name}, ${how}`,
      run: async () => {
        const folder = await plain();
        const [program = "", ...args] = await command();
        const version = await folder.run(program, [
          ...args.filter((it) => it !== "run" && it !== "-A"),
          "--version",
        ]);
        assertWorks(await folder.run(program, [...args, file], env));
        return version.trim().split("\n")[0]!.replace(/ \(.*/, "");
      },
    }));
  const withNode = (version: string) => async () => {
    const command = ["npx", "--yes", "--package", `node@${version}`, "--", "node"] as const;
    const folder = await plain();
    await folder.run(command[0], [...command.slice(1), "--version"]).catch((error: unknown) => {
      throw new NotRun(`no Node.js ${version}: ${(error as Error).message.split("\n")[0]}`);
    });
    return command;
  };
  return [
    ...(quick ? NODES.slice(0, 1) : NODES).flatMap((version) =>
      cell(`Node.js ${version}`, withNode(version)),
    ),
    ...cell("Bun", async () => [path.join(await tools(), "bun")]),
    ...cell("Deno", async () => [path.join(await tools(), "deno"), "run", "-A"]),
  ];
}

function compilers({ tarball, quick }: World): Cell[] {
  const versions = quick ? [TYPESCRIPTS[0]!, TYPESCRIPTS.at(-1)!] : TYPESCRIPTS;
  const project = once(async () => {
    const folder = await Folder.create("types");
    const files = await readdir(TYPES);
    for (const file of files) await folder.write({ [file]: await readFile(path.join(TYPES, file), "utf8") });
    await folder.write({ "type-check.cjs": await readFile(path.join(HERE, "type-check.cjs"), "utf8") });
    const compilers = versions.map((version) => `ts${version}@npm:typescript@~${version}.0`);
    await folder.install(tarball, "@types/node@20", ...compilers);
    return folder;
  });
  return versions.map((version) => ({
    name: `TypeScript ${version}: node16, nodenext, bundler, without skipLibCheck`,
    run: async () => (await project()).run(process.execPath, ["type-check.cjs", `ts${version}`]),
  }));
}

function testRunners({ tarball, hosts }: World): Cell[] {
  const env = { HOSTS: hosts };
  const jest = once(async () => {
    const commonTs = {
      compilerOptions: { module: "commonjs", target: "es2022", strict: true, esModuleInterop: true },
    };
    const moduleTs = {
      compilerOptions: { module: "nodenext", target: "es2022", strict: true, isolatedModules: true },
    };
    const folder = await Folder.create("jest", {
      "commonjs/package.json": "{}",
      "commonjs/tsconfig.json": JSON.stringify(commonTs),
      "commonjs/jest.config.js": `module.exports = { preset: "ts-jest" };`,
      "commonjs/lock.test.ts": testFile("matrix/jest-commonjs"),
      "jsdom/package.json": "{}",
      "jsdom/tsconfig.json": JSON.stringify(commonTs),
      "jsdom/jest.config.js": `module.exports = { preset: "ts-jest", testEnvironment: "jsdom" };`,
      "jsdom/lock.test.ts": domTestFile("matrix/jest-jsdom"),
      "module/package.json": `{ "type": "module" }`,
      "module/tsconfig.json": JSON.stringify(moduleTs),
      "module/jest.config.js": `export default { preset: "ts-jest/presets/default-esm" };`,
      "module/lock.test.ts": testFile("matrix/jest-module"),
    });
    await folder.install(
      tarball,
      "jest@30",
      "jest-environment-jsdom@30",
      "ts-jest@29",
      "typescript@5.9",
      "@types/jest@30",
      "@types/node@20",
    );
    return folder;
  });
  const vitest = once(async () => {
    const folder = await Folder.create("vitest", {
      "node/lock.test.ts": testFile("matrix/vitest"),
      "jsdom/lock.test.ts": domTestFile("matrix/vitest-jsdom"),
      "happy-dom/lock.test.ts": domTestFile("matrix/vitest-happy-dom"),
    });
    await folder.install(tarball, "vitest@4.1.12", "jsdom@26", "happy-dom@20");
    return folder;
  });
  const passed = (said: string): void => {
    const text = stripVTControlCharacters(said);
    if (!/Tests:? +[12] passed/.test(text) || text.includes("open handle")) throw new Error(said);
  };
  return [
    ["Jest, CommonJS by ts-jest", "commonjs", []] as const,
    ["Jest, ES modules by ts-jest", "module", ["--experimental-vm-modules"]] as const,
    ["Jest, jsdom", "jsdom", []] as const,
  ]
    .map(([name, folder, flags]): Cell => ({
      name,
      run: async () => {
        const project = await jest();
        const program = path.join(project.path, "node_modules/jest/bin/jest.js");
        passed(
          await project.within(folder).run(process.execPath, [...flags, program, "--detectOpenHandles"], env),
        );
        return (await project.run(process.execPath, [program, "--version"])).trim();
      },
    }))
    .concat(
      ["node", "jsdom", "happy-dom"].map((environment) => ({
        name: environment === "node" ? "Vitest" : `Vitest, ${environment}`,
        run: async () => {
          const project = await vitest();
          const program = path.join(project.path, "node_modules/vitest/vitest.mjs");
          const args = ["run", "--globals", "--environment", environment, `${environment}/lock.test.ts`];
          passed(await project.run(process.execPath, [program, ...args], env));
          return (await project.run(process.execPath, [program, "--version"])).trim();
        },
      })),
    );
}

/** Each knows no more than that its output is for Node.js. etcd3, which leasehold can use, is not installed. */
function bundlers({ tarball, hosts }: World): Cell[] {
  const env = { HOSTS: hosts, NEXT_TELEMETRY_DISABLED: "1" };
  const packages = { "webpack 5": "webpack", Rspack: "@rspack/core" };
  const plain = once(async () => {
    const folder = await Folder.create("bundlers", {
      "bundle.mjs": bundle,
      "lock.mjs": esModule("matrix/bundled"),
    });
    await folder.install(tarball, "webpack@5", "@rspack/core@1");
    return folder;
  });
  const next = once(async () => {
    const folder = await Folder.create("next", nextProject("matrix/next"));
    await folder.install(tarball, "next@16", "react@19", "react-dom@19");
    return folder;
  });
  const versionOf = async (folder: Folder, name: string): Promise<string> => {
    const json = await readFile(path.join(folder.path, "node_modules", name, "package.json"), "utf8");
    return (JSON.parse(json) as { readonly version: string }).version;
  };
  return [
    ...Object.entries(packages).map(([name, tool]) => ({
      name: `${name}, without configuration`,
      run: async () => {
        const folder = await plain();
        const said = await folder.run(process.execPath, ["bundle.mjs", tool, `${tool}.cjs`]);
        if (said.trim() !== "") throw new Error(said);
        assertWorks(await folder.run(process.execPath, [`out/${tool}.cjs`], env));
        return versionOf(folder, tool);
      },
    })),
    {
      name: "Next.js 16: bundled by Turbopack, and standalone",
      run: async () => {
        const folder = await next();
        const build = ["node_modules/next/dist/bin/next", "build"];
        await folder.run(process.execPath, build, env);
        await folder.write({ "visit.mjs": visit });
        const start = ["node_modules/next/dist/bin/next", "start", "-p", "0"];
        assertWorks(await folder.run(process.execPath, ["visit.mjs", ...start], env));
        await folder.run(process.execPath, build, { ...env, STANDALONE: "1" });
        // Where nothing else of the project is found.
        const apart = await Folder.create("next-standalone", { "visit.mjs": visit });
        await cp(path.join(folder.path, ".next/standalone"), apart.path, { recursive: true });
        const more = { ...env, PORT: "0", STANDALONE: "1" };
        assertWorks(await apart.run(process.execPath, ["visit.mjs", "server.js"], more));
        return versionOf(folder, "next");
      },
    },
  ];
}

export function cellsOf(world: World): Cell[] {
  const plain = plainProject(world);
  return [
    { name: "size and time to import", run: async () => weigh(await plain()) },
    ...runtimes(world, plain),
    ...testRunners(world),
    ...bundlers(world),
    ...compilers(world),
  ];
}
