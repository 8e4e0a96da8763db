import { Connection } from "../../../../src/tools/ui/page/connection.js";
import { byId, setAttribute, setText } from "../../../../src/tools/ui/page/dom.js";
import type { Frame, Hello, SearchView, Started, StoryLine } from "../protocol.js";
import { Controls } from "./controls.js";
import { Moment } from "./moment.js";
import { post } from "./post.js";
import { Queues } from "./queues.js";
import { SettingForm } from "./setting-form.js";
import { Stage } from "./stage.js";
import { StoryList } from "./story.js";

const STATES = { live: "Live", lost: "Connection lost, trying again" } as const;

const moment = new Moment();
const stage = new Stage(moment);
const queues = new Queues();
const story = new StoryList();
const controls = new Controls();
const form = new SettingForm();

/** An address with another run than the server's: once, that one is started. */
let wanted: string | undefined = location.search.slice(1);

function frame(data: Frame): void {
  if (wanted) {
    const query = wanted;
    wanted = undefined;
    if (query !== data.query) return void post("/start", { query });
  }
  moment.set(data);
  stage.set(data);
  queues.set(data);
  controls.set(data);
  form.repeat(data);
}

const clock = (): void => {
  setText(byId("now"), (moment.now / 1000).toFixed(4));
  requestAnimationFrame(clock);
};
requestAnimationFrame(clock);

new Connection(
  "events",
  {
    hello: (data) => form.offer(data as Hello),
    started: (data) => {
      for (const part of [stage, queues, story]) part.clear();
      form.fill(data as Started);
    },
    story: (data) => story.add(data as StoryLine[]),
    search: (data) => form.searched(data as SearchView),
    frame: (data) => frame(data as Frame),
  },
  (state) => {
    setText(byId("link"), STATES[state]);
    setAttribute(byId("link"), "data-state", state);
  },
);
