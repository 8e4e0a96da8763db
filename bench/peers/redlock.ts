import { connect as connectRedlock } from "../../test/chaos/rivals/subjects/redlock.js";
import { polling } from "./polling.js";

export const connect = polling(connectRedlock);
