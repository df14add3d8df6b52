//! The flows of a campaign: through a store, a topic, a broker and databases, and back to the
//! receiver.

/// Where the flows find what is around them.
pub struct Around {
    pub port: u16,
    pub receiver: u16,
    pub broker: String,
    pub postgres: String,
    pub mariadb: String,
}

/// The file; a number makes its flows other ones.
pub fn text(around: &Around, number: u64) -> String {
    let Around { port, broker, .. } = around;
    let Around {
        postgres, mariadb, ..
    } = around;
    let receiver = format!("http://127.0.0.1:{}", around.receiver);
    let retry = "retry: { times: 1000000, delay: 20ms, delay_max: 300ms }";
    let requeue = "on_failure: requeue, redeliveries: 1000, delay: 200ms";
    let patience = "pool: 8, wait: 2s, connect_timeout: 2s, statement_timeout: 5s";
    let args = "args: { n: \"${ .n }\", p: \"${ .p }\" }, rows: none";
    let entry = "insert into entries (n, side, p) values (:n,";
    format!(
        r#"engine: {{ listen: "127.0.0.1:{port}" }}
use:
  mq:
    rabbitmq: {broker}
    declare:
      queues:
        - {{ name: work, type: quorum, arguments: {{ x-delivery-limit: 100000 }} }}
        - {{ name: relay, type: classic }}
        - {{ name: announce, type: classic }}
  pg: {{ postgres: "{postgres}", {patience} }}
  maria: {{ mysql: "{mariadb}", {patience} }}
---
flow: take
doc: version {number}
from: {{ http: POST :{port}/orders }}
steps:
  - store: {{ in: orders }}
  - reply: {{ status: 202, body: {{ id: "${{ $stored.id }}" }} }}
---
flow: deliver
from: {{ store: {{ name: orders, concurrent: 16, {retry} }} }}
steps:
  - http: {{ to: "{receiver}/orders", method: POST, headers: {{ X-Id: "${{ $path.store_id }}" }} }}
---
topic: prices
payload: event
keep: {{ events: 1000000, bytes: 1GiB }}
publish: {{ http: "POST :{port}/topics/prices" }}
subscribe: {{ listen: ":{port}", heartbeat: 1s }}
---
flow: mirror
from: {{ topic: {{ name: prices, start: earliest, {retry} }} }}
steps:
  - http: {{ to: "{receiver}/events", method: POST, headers: {{ X-Id: "${{ $path.event_id }}" }} }}
---
flow: enqueue
from: {{ http: POST :{port}/queue }}
steps:
  - publish: {{ to: mq, queue: work }}
  - reply: {{ status: 202 }}
---
flow: work
from: {{ rabbitmq: {{ connection: mq, queue: work, decode: json, {requeue} }} }}
steps:
  - sql: {{ to: pg, query: "insert into worked values (:n, :p) on conflict do nothing", {args} }}
---
flow: enqueue-relay
from: {{ http: POST :{port}/relay }}
steps:
  - publish: {{ to: mq, queue: relay }}
  - reply: {{ status: 202 }}
---
flow: relay
from: {{ rabbitmq: {{ connection: mq, queue: relay, decode: json, {requeue} }} }}
steps:
  - store: {{ in: relayed }}
---
flow: relayed
from: {{ store: {{ name: relayed, concurrent: 16, {retry} }} }}
steps:
  - http: {{ to: "{receiver}/relayed", method: POST, headers: {{ X-Id: "${{ $path.store_id }}" }} }}
---
flow: enqueue-announce
from: {{ http: POST :{port}/announce }}
steps:
  - publish: {{ to: mq, queue: announce }}
  - reply: {{ status: 202 }}
---
flow: announce
from: {{ rabbitmq: {{ connection: mq, queue: announce, decode: json, {requeue} }} }}
steps:
  - publish: {{ topic: announced, key: "${{ .n }}" }}
---
topic: announced
payload: event
---
flow: announced
from: {{ topic: {{ name: announced, start: earliest, {retry} }} }}
steps:
  - sql: {{ to: maria, query: "insert ignore into announced values (:n, :p)", {args} }}
---
flow: book
from: {{ http: POST :{port}/book }}
steps:
  - transaction:
      to: pg
      steps:
        - sql: {{ to: pg, query: "{entry} 1, :p)", {args} }}
        - sql: {{ to: pg, query: "{entry} 2, :p)", {args} }}
  - reply: {{ status: 201 }}
"#
    )
}
