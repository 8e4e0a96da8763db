import type { Board } from "../../board/board.js";
import { EXIT } from "../command-line/exit.js";
import { table } from "../command-line/io.js";
import { Feed, type FeedSettings } from "./feed.js";
import { changeLine } from "./json-lines.js";
import { Rates } from "./rates.js";
import { heldText, holderText, tableOf } from "./rows.js";

/** The locks as they are now, once. It ends with an error if etcd does not answer. */
export function writeSnapshot(settings: FeedSettings, wantsJson: boolean): Promise<number> {
  const { io } = settings;
  let written = false;
  const feed: Feed = new Feed(settings, {
    changed: () => {
      if (written) return;
      written = true;
      const { board } = feed;
      const text = wantsJson ? changeLine(board, board.names()) : textOf(board, settings);
      // After an error, the feed ends with the code of that.
      io.stdout.write(text, (error) => error ?? feed.end(EXIT.ok));
    },
    contact: ({ error }) => {
      if (error) feed.fail(error);
    },
    draw: () => "",
  });
  return feed.ended;
}

function textOf(board: Board, { clock }: FeedSettings): string {
  const queues = [...board.names()].flatMap((name) => board.queue(name) ?? []);
  const now = { monotonic: clock.monotonic(), date: clock.date() };
  const { rows } = tableOf(queues, { sort: "waiters", filter: "", rates: new Rates(), now });
  const cells = rows.map(({ queue, held }) => [
    ...[queue.name, queue.kind, holderText(queue)],
    ...[String(queue.holders.length), String(queue.waiterCount), heldText(held)],
  ]);
  return table(["NAME", "KIND", "HOLDER", "HOLDING", "WAITING", "HELD"], cells);
}
