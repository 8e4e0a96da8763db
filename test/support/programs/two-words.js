// Sends two messages at once, and ends.
process.send?.("first");
process.send?.("second");
