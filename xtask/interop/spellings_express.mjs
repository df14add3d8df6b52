// An Express application as its authors' guide begins one: what lies below /admin is secret.
import { createRequire } from "node:module";

const [packages, port] = process.argv.slice(2);
const express = createRequire(`${packages}/`)("express");
const application = express();
application.use("/admin", (request, response) => response.send("SECRET"));
application.use((request, response) => response.send("open"));
application.listen(Number(port), "127.0.0.1");
