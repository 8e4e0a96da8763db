// The child of a process that `guardian: true` guards: it lives on when its parent has ended.
process.on("disconnect", () => {});
setInterval(() => {}, 60_000);
