// Preload (`node --import`): adds `shiftDate(ms)`, which moves the wall clock of this process as an administrator or
// NTP would: `Date` jumps, while timers and the monotonic clock are not affected.
const RealDate = Date;
let offset = 0;
const now = () => RealDate.now() + offset;

const ShiftedDate = new Proxy(RealDate, {
  construct: (target, parts, newTarget) =>
    Reflect.construct(target, parts.length === 0 ? [now()] : parts, newTarget),
  apply: () => new RealDate(now()).toString(),
  get: (target, property) => (property === "now" ? now : Reflect.get(target, property)),
});

Object.assign(globalThis, {
  Date: ShiftedDate,
  shiftDate: (/** @type {number} */ ms) => {
    offset += ms;
  },
});
