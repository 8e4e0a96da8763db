// `npm run api:update` writes the public API of each entry, as its declarations have it, to etc/. `npm run api:check`
// compares, and exits with code 1 if a report does not match.
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Extractor, ExtractorConfig, ExtractorLogLevel } from "@microsoft/api-extractor";
import { build, libraryDeclarations } from "./build.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const REPORTS = path.join(ROOT, "etc");
const none = { logLevel: ExtractorLogLevel.None };

const update = process.argv.includes("--update");
await build();
const temporary = mkdtempSync(path.join(os.tmpdir(), "leasehold-api-"));
try {
  mkdirSync(REPORTS, { recursive: true });
  const changed = Object.entries(libraryDeclarations()).filter(([name, file]) => !report(name, file));
  for (const [name] of changed) console.log(`etc/${name}.api.md ${update ? "updated" : "differs"}`);
  if (changed.length === 0) console.log("The API is that of etc/.");
  if (changed.length > 0 && !update) {
    console.error("error  The public API has changed. `npm run api:update` writes the reports.");
    process.exitCode = 1;
  }
} finally {
  rmSync(temporary, { recursive: true, force: true });
}

/** @param {string} name @param {string} file @returns {boolean} whether the report was up to date */
function report(name, file) {
  const config = ExtractorConfig.prepare({
    configObject: configOf(name, file),
    configObjectFullPath: undefined,
    packageJsonFullPath: path.join(ROOT, "package.json"),
  });
  /** @type {string[]} */
  const problems = [];
  const { apiReportChanged, errorCount } = Extractor.invoke(config, {
    localBuild: update,
    messageCallback: (message) => {
      if (message.logLevel === ExtractorLogLevel.Error) problems.push(message.text);
      message.handled = true;
    },
  });
  if (errorCount > 0) throw new Error(problems.join("\n"));
  return !apiReportChanged;
}

/** @param {string} name @param {string} file @returns {import("@microsoft/api-extractor").IConfigFile} */
function configOf(name, file) {
  const compilerOptions = { module: "nodenext", target: "ES2022", lib: ["ES2023", "ESNext.Disposable"] };
  return {
    projectFolder: ROOT,
    mainEntryPointFilePath: file,
    newlineKind: "lf",
    compiler: {
      overrideTsconfig: {
        compilerOptions: { ...compilerOptions, types: ["node"], strict: true, skipLibCheck: true },
        files: [file],
      },
    },
    apiReport: {
      enabled: true,
      reportFolder: REPORTS,
      reportTempFolder: temporary,
      reportFileName: `${name}.api.md`,
    },
    docModel: { enabled: false },
    dtsRollup: { enabled: false },
    tsdocMetadata: { enabled: false },
    messages: {
      compilerMessageReporting: { default: { logLevel: ExtractorLogLevel.Error } },
      extractorMessageReporting: { default: none },
      tsdocMessageReporting: { default: none },
    },
  };
}
