import { connect as connectRedlock } from "../../test/lab/rivals/subjects/redlock.js";
import { polling } from "./polling.js";

export const connect = polling(connectRedlock);
