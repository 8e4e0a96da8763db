import { Http2Error } from "./frames/http2-error.js";
import { SETTING } from "./frames/frames.js";

const SETTING_BYTES = 6;
export const MAX_WINDOW = 0x7fff_ffff;

/** What the peer asks of what is sent to it: RFC 9113, section 6.5.2, with the values that hold before its first SETTINGS. */
export class PeerSettings {
  maxConcurrentStreams = Infinity;
  initialWindow = 65_535;
  maxFrameSize = 16_384;

  /** @throws {Http2Error} on values that the RFC forbids. */
  apply(payload: Buffer): void {
    if (payload.length % SETTING_BYTES !== 0)
      throw new Http2Error("FRAME_SIZE_ERROR", "the peer sends SETTINGS that are cut off");
    for (let at = 0; at < payload.length; at += SETTING_BYTES)
      this.#set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2));
  }

  #set(id: number, value: number): void {
    switch (id) {
      case SETTING.MAX_CONCURRENT_STREAMS:
        this.maxConcurrentStreams = value;
        break;
      case SETTING.INITIAL_WINDOW_SIZE:
        if (value > MAX_WINDOW)
          throw new Http2Error("FLOW_CONTROL_ERROR", `the peer sets an initial window of ${value} bytes`);
        this.initialWindow = value;
        break;
      case SETTING.MAX_FRAME_SIZE:
        if (value < 16_384 || value > 0xff_ffff)
          throw new Http2Error("PROTOCOL_ERROR", `the peer sets a frame size of ${value} bytes`);
        this.maxFrameSize = value;
        break;
      case SETTING.ENABLE_PUSH:
        if (value !== 0) throw new Http2Error("PROTOCOL_ERROR", "the peer enables push for a client");
    }
  }
}
