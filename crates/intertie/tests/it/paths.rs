//! Relative paths in a flow file start at the file's own folder, wherever the engine was started.

use testkit::{TempDir, free_port, wait_until};

use crate::support::{Engine, post};

const FLOWS: &str = r#"
engine: { listen: "127.0.0.1:PORT" }
---
flow: keep
use: { db: { sqlite: kept/shop.db } }
from: { http: POST /keep }
steps:
  - sql: { to: db, query: "create table if not exists orders (id integer)", rows: none }
  - write-file: { folder: ./written, name: "${ .id }.json", body: "${ . }" }
  - list-files: { folder: written }
    as: listed
  - read-file: { folder: ./written/., name: "${ .id }.json", decode: json }
    as: read
  - delete-file: { folder: written, name: "${ .id }.json" }
  - template: { file: words.txt }
    as: words
  - reply: { body: { files: "${ $listed | length }", read: "${ $read.id }", words: "${ $words }" } }
---
flow: lose
from: { http: POST /lose }
steps:
  - raise: { type: lost }
on_error:
  - on: any
    steps: [{ dead-letter: { folder: dead } }]
    reply: { status: 202 }
---
flow: arrive
from: { file: { folder: in, done: ./taken, stable: 0s } }
steps:
  - log: "${ $path.name } has arrived"
"#;

#[test]
fn relative_paths_start_at_the_folder_of_the_flow_file() {
    let folder = TempDir::new();
    let port = free_port();
    let flows = FLOWS.replace("PORT", &port.to_string());
    folder.write("project/flows/all.yaml", flows.trim_start());
    folder.write("project/flows/words.txt", "fine");
    folder.write("project/flows/kept/.keep", "");
    let own = folder.path().join("project/flows");
    let _engine = Engine::run(&[&folder.path().join("project")], &[]);
    let reply = post(port, "/keep", "application/json", r#"{"id":7}"#);
    assert_eq!(reply.text(), r#"{"files":1,"read":7,"words":"fine"}"#);
    assert!(own.join("kept/shop.db").is_file());
    assert!(own.join("written").is_dir());
    assert_eq!(post(port, "/lose", "text/plain", "x").status, 202);
    assert_eq!(own.join("dead").read_dir().unwrap().count(), 1);
    folder.write("project/flows/in/a.txt", "a");
    wait_until("the file is taken", || own.join("taken/a.txt").is_file());
}
