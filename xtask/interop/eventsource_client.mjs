// npm's eventsource: a stream of one topic, and one of two.
//
// eventsource_client.mjs PACKAGES URL COUNT

import { createRequire } from "node:module";

import { Taken, followEvents } from "./topics.mjs";

const [packages, url, number] = process.argv.slice(2);
const count = Number(number);
const { EventSource } = createRequire(`${packages}/`)("eventsource");

const events = new Taken("one topic", "events", count);
const both = [
  new Taken("the first of two topics", "events", count),
  new Taken("the second of two topics", "tenths", count, 10),
];
await Promise.all([
  followEvents(EventSource, `${url}/topics/events/sse?from=earliest`, [events]),
  followEvents(EventSource, `${url}/topics/sse?topic=events&topic=tenths&from=earliest`, both),
]);
for (const taken of [events, ...both]) {
  console.log(taken.line());
}
// Timers for what did not happen would keep the process.
process.exit(0);
