import { CONNECTION_PREFACE, SETTING, settingsFrame } from "./frames/frames.js";
import { MAX_HEADER_LIST_BYTES } from "./incoming.js";
import { ReceiveWindows } from "./receive-windows.js";

/** What a client sends first: RFC 9113, section 3.4. */
export const greeting = (): Buffer =>
  Buffer.concat([
    Buffer.from(CONNECTION_PREFACE, "latin1"),
    settingsFrame([
      [SETTING.HEADER_TABLE_SIZE, 0],
      [SETTING.ENABLE_PUSH, 0],
      [SETTING.INITIAL_WINDOW_SIZE, ReceiveWindows.STREAM_BYTES],
      [SETTING.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST_BYTES],
    ]),
  ]);
