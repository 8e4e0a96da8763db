// How tests wait for the word of a program that they have started.
import { fork, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";

const run = (code: string) => new Said(owned(spawn(process.execPath, ["-e", code], { stdio: "pipe" })));

test("lines that arrive in one chunk are said one after the other, also before anybody waits", async () => {
  const said = run(`process.stdout.write("a\\nb\\nc\\nd")`);

  expect(await said.next()).toBe("a");
  expect(await said.first((word) => word !== "a")).toBe("b");
  expect(await said.next()).toBe("b");
  await said.says("d");
  expect(await Promise.all([said.next(), said.next()])).toEqual(["c", "d"]);
  expect(await said.word(0)).toBe("a");
});

test("messages that arrive at once are said one after the other", async () => {
  const file = fileURLToPath(new URL("../../support/programs/two-words.js", import.meta.url));
  const said = new Said(owned(fork(file)));

  expect([await said.next(), await said.next()]).toEqual(["first", "second"]);
});

test("the words of a worker thread are its lines", async () => {
  const worker = new Worker(`console.log("a"); console.log("b")`, { eval: true, stdout: true });
  const said = new Said(worker);

  expect([await said.next(), await said.next()]).toEqual(["a", "b"]);
  await expect(said.next()).rejects.toThrow("the thread ended (exit code 0)");
});

test("a wait ends with what the program has said when that ends without the word", async () => {
  const said = run(`console.log("so far"); console.error("no more of it"); process.exitCode = 3`);
  const waits = [said.word(1), said.first((word) => word === "done"), said.says("done")];

  for (const wait of await Promise.allSettled(waits))
    expect(String((wait as PromiseRejectedResult).reason)).toMatch(
      /ended \(exit code 3\) without .*\. It said:\nso far\nno more of it/,
    );
  await expect(said.later()).rejects.toThrow("exit code 3");
});

test("a wait ends with a program whose child has its pipes open", async () => {
  const said = run(`
    const { pid } = require("node:child_process").spawn("sleep", ["1000"], { stdio: "inherit" });
    process.stdout.write(pid + "\\n", () => process.kill(process.pid));
  `);
  const child = Number(await said.next());

  await expect(said.next()).rejects.toThrow("ended (SIGTERM)");
  process.kill(child);
});

test("a wait ends when there is no such program", async () => {
  await expect(new Said(spawn("/no/such/program")).next()).rejects.toThrow("ENOENT");
});
