//! The walls between crates: who may use whom, and where other people's libraries may live.

use super::{File, Problems};

/// The crates of the workspace and what each may use of the others.
pub(super) const EDGES: &[(&str, &[&str])] = &[
    ("message", &[]),
    ("config", &[]),
    ("expr", &[]),
    ("net", &["message"]),
    ("component", &["message", "config"]),
    ("proxy", &["net", "component", "message"]),
    ("flow", &["component", "message", "config"]),
    ("steps", &["component", "expr", "message", "config"]),
    (
        "intertie",
        &[
            "flow",
            "steps",
            "proxy",
            "net",
            "component",
            "expr",
            "message",
            "config",
        ],
    ),
    ("testkit", &[]),
    ("xtask", &[]),
];

/// Libraries with one home, by the beginning of their names.
const HOMES: &[(&str, &[&str])] = &[
    ("httparse", &["net"]),
    ("socket2", &["net", "testkit"]),
    ("hyper", &["net"]),
    ("h2", &["net"]),
    ("rustls", &["net"]),
    ("saphyr", &["config"]),
    ("granit", &["config"]),
    ("serde-saphyr", &["config"]),
    ("annotate-snippets", &["config"]),
    ("quick-xml", &["expr"]),
    ("anyhow", &["intertie", "xtask", "lab"]),
    ("clap", &["intertie", "lab"]),
];

pub(super) fn check(files: &[File], problems: &mut Problems) {
    let manifests = files.iter().filter(|file| {
        file.path
            .file_name()
            .is_some_and(|name| name == "Cargo.toml")
            && !file.path.starts_with("fuzz")
            && file.path.components().count() > 1
    });
    for manifest in manifests {
        check_manifest(manifest, problems);
    }
}

fn check_manifest(manifest: &File, problems: &mut Problems) {
    let Some(name) = value(&manifest.text, "name") else {
        return problems.add(&manifest.path, 1, "the manifest has no name");
    };
    let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
        return problems.add(
            &manifest.path,
            1,
            format!("{name} is not in xtask's table of edges"),
        );
    };
    for inherited in ["version", "edition", "rust-version", "license", "publish"] {
        if !manifest
            .text
            .contains(&format!("{inherited}.workspace = true"))
        {
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
            section = line;
            continue;
        }
        let Some(used) = dependency(section, line) else {
            continue;
        };
        let is_ours = EDGES.iter().any(|(known, _)| *known == used);
        let may = match section {
            "[dev-dependencies]" => used == "testkit" || name == "intertie" || !is_ours,
            _ => !is_ours || allowed.contains(&used),
        };
        if !may {
            let message = format!("{name} may not use {used} (xtask/src/tidy/crates.rs)");
            problems.add(&manifest.path, number + 1, message);
        }
        let home = HOMES.iter().find(|(library, _)| used.starts_with(library));
        if let Some((_, homes)) = home.filter(|(_, homes)| !homes.contains(&name)) {
            let message = format!("{used} lives only in {}", homes.join(", "));
            problems.add(&manifest.path, number + 1, message);
        }
        if !line.contains("workspace = true") {
            problems.add(
                &manifest.path,
                number + 1,
                format!("{used}: not the workspace's version"),
            );
        }
    }
}

/// The package that a line of a dependency section names.
fn dependency<'a>(section: &str, line: &'a str) -> Option<&'a str> {
    if !section.ends_with("dependencies]") {
        return None;
    }
    let name = line.split(['.', ' ', '=']).next()?.trim();
    (!name.is_empty() && !name.starts_with('#')).then_some(name)
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{key} = ")))?;
    line.split('"').nth(1)
}
