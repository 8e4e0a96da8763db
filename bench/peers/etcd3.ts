import { connectAcquiring } from "../../test/lab/rivals/subjects/etcd3.js";
import { polling } from "./polling.js";

export const connect = polling(connectAcquiring);
