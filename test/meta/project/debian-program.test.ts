// How tests find programs: installed ones and fetched ones have different roots.
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { findProgram, ProgramMissingError } from "../../support/servers/debian-program.js";

const MODULE = "usr/lib/server/modules/extra.so";
const PLAN = {
  names: ["server"] as [string],
  ...{ file: "usr/sbin/server", loads: [MODULE] },
  ...{ versionArgs: ["-v"], version: /version (\S+)/ },
};

function folder(): string {
  const made = realpathSync(mkdtempSync(path.join(os.tmpdir(), "leasehold-find-")));
  onTestFinished(() => rmSync(made, { recursive: true }));
  return made;
}

/** A machine, or the files of a package, with this program. */
function tree(version: string, { file = "usr/sbin/server", loads = [MODULE] } = {}): string {
  const root = folder();
  for (const each of [file, ...loads]) mkdirSync(path.dirname(path.join(root, each)), { recursive: true });
  writeFileSync(path.join(root, file), `#!/bin/sh\necho version ${version}\n`, { mode: 0o755 });
  for (const each of loads) writeFileSync(path.join(root, each), "");
  return root;
}

const found = (...folders: string[]) => findProgram(PLAN, { PATH: folders.join(":") });

test("what an installed program loads is looked for in its root, also where folders on the PATH are links", async () => {
  const root = tree("1.0");
  symlinkSync("usr/sbin", path.join(root, "sbin"));

  const places = [path.join(root, "usr/sbin"), path.join(root, "sbin")];
  for (const place of places)
    expect(await found(place)).toMatchObject({
      root: `${root}/`,
      program: `${place}/server`,
      version: "1.0",
    });
});

test("an installed program without what it is to load, or that does not start, is passed over", async () => {
  const bare = tree("1.0", { loads: [] });
  const elsewhere = tree("1.1", { file: "bin/server" });
  const broken = tree("2.0");
  writeFileSync(path.join(broken, "usr/sbin/server"), "#!/bin/sh\nexit 1\n");
  const whole = tree("3.0");

  const all = [bare, elsewhere, broken, whole].map((root) => path.join(root, "usr/sbin"));
  expect(await found(path.join(elsewhere, "bin"), ...all)).toMatchObject({
    version: "3.0",
    root: `${whole}/`,
  });
});

test("one that is under a link keeps its name, which may decide what it does", async () => {
  const root = tree("1.0", { file: "usr/sbin/server-tool" });
  symlinkSync("server-tool", path.join(root, "usr/sbin/server"));

  expect(await found(path.join(root, "usr/sbin"))).toMatchObject({ program: `${root}/usr/sbin/server` });
});

test("one that is neither there nor to be had is missing, and the failure says why", async () => {
  const wanted = findProgram({ ...PLAN, package: "server" }, { PATH: folder(), HOME: folder() });

  await expect(wanted).rejects.toThrow(ProgramMissingError);
  await expect(wanted).rejects.toThrow(/no server on the PATH, nor to be had .*there is no apt-get here/);
});
