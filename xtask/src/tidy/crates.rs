//! The walls between crates: who may use whom, and where other people's libraries may live.

use super::{File, Problems};

/// The crates of the workspace and what each may use of the others.
pub(super) const EDGES: &[(&str, &[&str])] = &[
    ("message", &[]),
    ("config", &[]),
    ("expr", &[]),
    ("access", &[]),
    ("allocator", &[]),
    ("amqp", &[]),
    ("batch-channel", &["allocator"]),
    ("journal", &["allocator", "batch-channel"]),
    ("net", &["message"]),
    ("component", &["message", "config", "expr"]),
    ("websub", &["component"]),
    ("proxy", &["allocator", "net", "component", "message"]),
    ("flow", &["component", "expr", "message", "config"]),
    (
        "steps",
        &[
            "access",
            "component",
            "expr",
            "journal",
            "message",
            "config",
        ],
    ),
    (
        "connectors",
        &["net", "amqp", "component", "expr", "message", "config"],
    ),
    (
        "topics",
        &[
            "allocator",
            "access",
            "net",
            "journal",
            "component",
            "websub",
            "steps",
            "expr",
            "message",
            "config",
        ],
    ),
    (
        "menu",
        &["journal", "component", "steps", "expr", "message", "config"],
    ),
    (
        "auth",
        &["access", "component", "steps", "expr", "message", "config"],
    ),
    (
        "intertie",
        &[
            "allocator",
            "flow",
            "auth",
            "steps",
            "connectors",
            "topics",
            "menu",
            "proxy",
            "net",
            "component",
            "access",
            "expr",
            "journal",
            "message",
            "config",
            "lab",
        ],
    ),
    ("testkit", &[]),
    ("lab", &["allocator"]),
    ("xtask", &[]),
];

/// Libraries with one home. A library's family is meant: every package that has this word in its
/// name, such as `tokio-rustls` for `rustls`.
const HOMES: &[(&str, &[&str])] = &[
    ("httparse", &["net", "lab"]),
    ("socket2", &["net", "testkit", "lab", "xtask"]),
    ("hyper", &["net"]),
    ("h2", &["net", "lab"]),
    // What a driver brings along of its own is that driver's matter.
    ("rustls", &["net", "lab", "connectors", "testkit"]),
    ("saphyr", &["config"]),
    ("granit", &["config"]),
    ("yaml", &["config"]),
    ("libyaml", &["config"]),
    ("annotate-snippets", &["config"]),
    ("quick-xml", &["expr"]),
    ("redb", &["journal"]),
    ("anyhow", &["intertie", "xtask", "lab"]),
    ("clap", &["intertie", "lab"]),
];

pub(super) fn check(files: &[File], problems: &mut Problems) {
    for file in files {
        let is_manifest = file.path.file_name().is_some_and(|it| it == "Cargo.toml");
        if is_manifest && file.path.iter().count() == 1 {
            check_root(file, problems);
        } else if is_manifest && !file.path.starts_with("fuzz") {
            check_manifest(file, problems);
        }
    }
}

/// The versions of the workspace: other people's come without default features, and nothing has a
/// second name that the walls would not know.
fn check_root(manifest: &File, problems: &mut Problems) {
    let mut in_dependencies = false;
    for (number, line) in manifest.text.lines().enumerate() {
        if line.starts_with('[') {
            in_dependencies = line.trim_end() == "[workspace.dependencies]";
            if line.contains("dependencies.") {
                problems.add(&manifest.path, number + 1, "write a dependency on one line");
            }
            continue;
        }
        let is_entry = in_dependencies && line.contains('=') && !line.starts_with('#');
        if is_entry && line.contains("package =") {
            problems.add(&manifest.path, number + 1, "a dependency with another name");
        }
        if is_entry && !line.contains("path =") && !line.contains("default-features = false") {
            let message = "a dependency with its default features";
            problems.add(&manifest.path, number + 1, message);
        }
    }
}

fn check_manifest(manifest: &File, problems: &mut Problems) {
    let Some(name) = value(&manifest.text, "name") else {
        return problems.add(&manifest.path, 1, "the manifest has no name");
    };
    let Some(&(_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
        return problems.add(
            &manifest.path,
            1,
            format!("{name} is not in xtask's table of edges"),
        );
    };
    for inherited in ["version", "edition", "rust-version", "license", "publish"] {
        let wanted = format!("{inherited}.workspace = true");
        if !manifest.text.lines().any(|line| line.trim_end() == wanted) {
            problems.add(
                &manifest.path,
                1,
                format!("{inherited} is not the workspace's"),
            );
        }
    }
    if !manifest.text.contains("[lints]\nworkspace = true") {
        problems.add(&manifest.path, 1, "the lints are not the workspace's");
    }
    let mut section = "";
    for (number, line) in manifest.text.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim_end();
            if section.contains("dependencies.") {
                problems.add(&manifest.path, number + 1, "write a dependency on one line");
            }
        } else if let Some(used) = dependency(section, line) {
            for message in dependency_problems((name, allowed), section, line, used) {
                problems.add(&manifest.path, number + 1, message);
            }
        }
    }
}

fn dependency_problems(
    (name, allowed): (&str, &[&str]),
    section: &str,
    line: &str,
    used: &str,
) -> Vec<String> {
    let mut messages = Vec::new();
    let is_ours = EDGES.iter().any(|(known, _)| *known == used);
    let may = match section.contains("dev-dependencies]") {
        true => used == "testkit" || name == "intertie" || !is_ours || allowed.contains(&used),
        false => !is_ours || allowed.contains(&used),
    };
    if !may {
        messages.push(format!(
            "{name} may not use {used} (xtask/src/tidy/crates.rs)"
        ));
    }
    let is_of = |family: &str| used == family || used.split(['-', '_']).any(|it| it == family);
    for (_, homes) in HOMES.iter().filter(|(family, _)| is_of(family)) {
        if !homes.contains(&name) {
            messages.push(format!("{used} lives only in {}", homes.join(", ")));
        }
    }
    if !line.contains("workspace = true") {
        messages.push(format!("{used}: not the workspace's version"));
    }
    messages
}

/// The package that a line of a dependency section names.
fn dependency<'a>(section: &str, line: &'a str) -> Option<&'a str> {
    let is_entry = section.ends_with("dependencies]") && line.contains('=');
    let name = line.split(['.', ' ', '=']).next()?.trim();
    (is_entry && !name.is_empty() && !name.starts_with('#')).then_some(name)
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{key} = ")))?;
    line.split('"').nth(1)
}
