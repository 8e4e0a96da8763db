import { CONNECTION_PREFACE, SETTING, settingsFrame, windowUpdateFrame } from "./frames/frames.js";
import { MAX_HEADER_LIST_BYTES } from "./incoming.js";
import { ReceiveWindows } from "./receive-windows.js";

/**
 * The first bytes of a connection: RFC 9113, section 3.4. Without a dynamic table each header block of the peer stands
 * alone; the window of the connection, which no setting opens, is opened by a frame of its own.
 */
export const GREETING = Buffer.concat([
  Buffer.from(CONNECTION_PREFACE, "latin1"),
  settingsFrame([
    [SETTING.HEADER_TABLE_SIZE, 0],
    [SETTING.ENABLE_PUSH, 0],
    [SETTING.INITIAL_WINDOW_SIZE, ReceiveWindows.STREAM_BYTES],
    [SETTING.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST_BYTES],
  ]),
  windowUpdateFrame(0, ReceiveWindows.CONNECTION_BYTES - ReceiveWindows.INITIAL_BYTES),
]);
