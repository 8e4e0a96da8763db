import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const BROWSER = fileURLToPath(new URL("browser/main.ts", import.meta.url));
const TSCONFIG = fileURLToPath(new URL("../../../tsconfig.page.json", import.meta.url));

/** The page's modules as one script, as `scripts/build.js` makes it for the page of `leasehold/ui`. */
export async function scriptOfPage(): Promise<string> {
  const modules = await rolldown({
    input: BROWSER,
    platform: "browser",
    tsconfig: TSCONFIG,
    resolve: { extensionAlias: { ".js": [".ts"] } },
  });
  try {
    const { output } = await modules.generate({ format: "iife" });
    return output[0].code;
  } finally {
    await modules.close();
  }
}
