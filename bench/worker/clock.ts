/** CLOCK_MONOTONIC in nanoseconds. A number is exact to a nanosecond for the first 104 days after the machine started. */
export const now = () => Number(process.hrtime.bigint());
