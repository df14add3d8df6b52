//! The commands of the guide, one after the other, as its readers give them.

use testkit::{TempDir, free_port, markdown_blocks};

use super::KEY;
use crate::support::{Engine, repository};

#[test]
fn the_commands_of_the_guide_do_what_it_says() {
    let root = repository();
    let (folder, port, sink) = (TempDir::new(), free_port(), free_port());
    let on_ports = |text: &str| {
        let text = text.replace(":8080", &format!(":{port}"));
        let text = text.replace(":9091", &format!(":{sink}"));
        text.replace("[9091]", &format!("[{sink}]"))
    };
    for (name, to) in [
        ("flows.yaml", "flows/flows.yaml"),
        ("partners.keys", "flows/partners.keys"),
        ("receiver.yaml", "receiver/receiver.yaml"),
    ] {
        let file = root.join("examples/webhooks-by-rest").join(name);
        let text = std::fs::read_to_string(file).unwrap();
        folder.write(to, &on_ports(&text));
    }
    let receiver = Engine::run(&[&folder.path().join("receiver")], &[]);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run_in(
        &[&folder.path().join("flows")],
        &["--data", &data],
        &[("WEBHOOK_ENCRYPTION_KEY", KEY)],
    );
    let guide = std::fs::read_to_string(root.join("docs/guides/webhooks.md")).unwrap();
    let (_, section) = guide.split_once("\n## Webhooks by REST\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = markdown_blocks(section).into_iter();
    let commands = blocks.filter(|it| it.language == "sh" && !it.text.contains("intertie run"));
    let commands: Vec<String> = commands.map(|it| on_ports(&it.text)).collect();
    assert_eq!(commands.len(), 3);
    let script = format!("set -e\n{}", commands.join("\n"));
    let done = std::process::Command::new("bash")
        .args(["-c", &script])
        .env("no_proxy", "*")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{printed}\n{told}");
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].contains(r#""state":"active""#), "{printed}");
    assert!(lines[1].contains(r#""accepted":true"#), "{printed}");
    assert!(
        lines.iter().any(|it| it.contains(r#""filter":null"#)),
        "{printed}"
    );
    assert!(
        lines
            .iter()
            .any(|it| it.contains("whsec_") && !it.contains("items"))
    );
    engine.stop();
    let log = receiver.stop();
    assert!(log.contains("the partner has got"), "{log}");
}
