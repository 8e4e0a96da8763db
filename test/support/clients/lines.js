/**
 * The lines of a stream of UTF-8. If the stream fails, the loop throws its error; if the loop is left, the stream is
 * destroyed. `readline` is not enough: a loop that leaves its lines early leaves the stream open, and a later failure of
 * the stream is then an error without a listener.
 * @param {import("node:stream").Readable} stream
 */
export async function* linesOf(stream) {
  stream.setEncoding("utf8");
  let rest = "";
  for await (const chunk of stream) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
  if (rest !== "") yield rest;
}
