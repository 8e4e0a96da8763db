/** EX_TEMPFAIL of sysexits.h: not a failure, but it cannot run on this machine. */
export const EXIT_NOT_RUN = 75;
