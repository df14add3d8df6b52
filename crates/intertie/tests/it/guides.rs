//! The commands of guides, one after the other, as their readers give them.

use std::process::{Command, Stdio};

use testkit::{Process, TempDir, free_port, markdown_blocks, wait_until};

use crate::support::{get, repository};

/// Somebody who follows a guide, in a folder of their own and on ports that are free.
struct Reader {
    folder: TempDir,
    /// What guide and examples have, and what stands in its place.
    replaced: Vec<(&'static str, String)>,
    /// The variables that have been exported.
    exports: String,
    /// What runs in the background, with the port that it was asked to have.
    running: Vec<(Process, u16)>,
}

impl Reader {
    /// One who has these examples of the repository. Ports of theirs and of the guide are replaced.
    fn of(examples: &[&str], ports: &[&'static str]) -> Self {
        let folder = TempDir::new();
        // Failures of curl are those of the guide.
        folder.write(
            ".curlrc",
            "silent\nshow-error\nfail-with-body\nnoproxy = \"*\"\n",
        );
        let replaced = ports.iter().map(|it| (*it, free_port().to_string()));
        let reader = Self {
            folder,
            replaced: replaced.collect(),
            exports: String::new(),
            running: Vec::new(),
        };
        for name in examples {
            let from = repository().join("examples").join(name);
            for entry in std::fs::read_dir(from).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    let text = reader.replace(&std::fs::read_to_string(&path).unwrap());
                    let file = path.file_name().unwrap().to_str().unwrap();
                    reader
                        .folder
                        .write(&format!("examples/{name}/{file}"), &text);
                }
            }
        }
        reader
    }

    fn replace(&self, text: &str) -> String {
        let of = |text: String, (from, to): &(&str, String)| text.replace(from, to);
        self.replaced.iter().fold(text.to_owned(), of)
    }

    fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("bash");
        let folder = self.folder.path();
        shell.args(["-c", &format!("set -e\n{}{script}", self.exports)]);
        shell.current_dir(folder).env("CURL_HOME", folder);
        shell.stdin(Stdio::null());
        shell
    }

    /// Gives the commands of a block. Engines and stubs go on; what the others have printed.
    fn give(&mut self, block: &str) -> String {
        let mut printed = String::new();
        let block = self.replace(block).replace("\\\n", " ");
        for line in block.lines() {
            if let Some(arguments) = line.strip_prefix("intertie ") {
                self.start(arguments.trim_end_matches(" &"));
            } else if line.starts_with("export ") {
                self.exports += &format!("{line}\n");
            } else {
                let done = self.shell(line).output().unwrap();
                let told = String::from_utf8_lossy(&done.stderr);
                printed += &String::from_utf8_lossy(&done.stdout);
                assert!(done.status.success(), "{line}\n{printed}\n{told}");
            }
        }
        printed
    }

    fn start(&mut self, arguments: &str) {
        let mut arguments = arguments.to_owned();
        let is_engine = arguments.starts_with("run ");
        if is_engine && !arguments.contains("--admin") {
            arguments += &format!(" --admin 127.0.0.1:{}", free_port());
        }
        let option = if is_engine { "--admin " } else { "--listen " };
        let (_, address) = arguments.split_once(option).unwrap();
        let address = address.split(' ').next().unwrap();
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        let program = env!("CARGO_BIN_EXE_intertie");
        let mut process = Process::start(&mut self.shell(&format!("exec {program} {arguments}")));
        process.wait_for_port(port);
        if is_engine {
            wait_until("it is ready", || get(port, "/ready").status == 200);
        }
        self.running.push((process, port));
    }
}

/// The blocks with commands of a section of a guide, or of its beginning.
fn commands(guide: &str, section: &str) -> Vec<String> {
    let path = repository().join("docs/guides").join(guide);
    let text = format!("\n## \n{}", std::fs::read_to_string(path).unwrap());
    let (_, text) = text.split_once(&format!("\n## {section}\n")).unwrap();
    let (text, _) = text.split_once("\n## ").unwrap_or((text, ""));
    let blocks = markdown_blocks(text).into_iter();
    let blocks = blocks.filter(|it| it.language == "sh");
    blocks.map(|it| it.text).collect()
}

#[test]
fn webhooks_for_your_users() {
    let mut reader = Reader::of(&["topic-webhooks"], &["8080", "9091", "9900"]);
    let [run, publish] = &commands("webhooks.md", "")[..] else {
        panic!("the guide has other blocks than it had");
    };
    let run = run.replace("--data", "--admin 127.0.0.1:9900 --data");
    // What the last section needs.
    let flows = reader
        .folder
        .path()
        .join("examples/topic-webhooks/flows.yaml");
    let text = std::fs::read_to_string(&flows).unwrap();
    let text = text.replacen("engine:\n", "engine:\n  admin: { operate: none }\n", 1);
    std::fs::write(&flows, text).unwrap();
    reader.give(&run);
    let receipt = reader.give(publish);
    assert!(receipt.contains("\"id\":"), "{receipt}");
    let log = |reader: &Reader, text: &str| reader.running[0].0.wait_for(text);
    log(&reader, "the shop has got A1 paid");
    log(&reader, "the warehouse has got A1");
    let operations = commands("webhooks.md", "Operations");
    assert_eq!(operations.len(), 1);
    // The guide's hour is another one.
    let of_all_time = operations[0].replace("2026-11-24T09", "2026-01-01T09");
    let of_all_time = of_all_time.replace("2026-11-24T10", "2999-01-01T10");
    assert_ne!(operations[0], of_all_time);
    reader.give(&of_all_time);
    log(&reader, "resumed");
    log(&reader, "paused");
    log(&reader, "events are sent again");
}

#[test]
fn a_websub_hub() {
    let mut reader = Reader::of(&["websub-hub"], &["8080", "8081", "8688", "9901"]);
    let [run, publish, subscribe, again] = &commands("websub-hub.md", "Try it")[..] else {
        panic!("the guide has other blocks than it had");
    };
    reader.give(run);
    let subscribers = |reader: &Reader, count: usize| {
        let wanted = format!(
            "intertie_websub_hub_subscriptions{{flow=\"news\",step=\"websub\"}} {count}.0\n"
        );
        wait_until("they are subscribed", || {
            get(reader.running[0].1, "/metrics")
                .text()
                .contains(&wanted)
        });
    };
    subscribers(&reader, 1);
    reader.give(publish);
    reader.running[1].0.wait_for("news: Rain in the north");
    let reply = reader.give(subscribe);
    assert!(reply.starts_with("HTTP/1.1 202"), "{reply}");
    subscribers(&reader, 2);
    reader.give(again);
    reader.running[1].0.wait_for("news: Sun in the south");
    let report = again.lines().last().unwrap().to_owned();
    wait_until("the callback has it", || {
        reader.give(&report).contains("\"posts\":1,\"accepted\":1")
    });
}
