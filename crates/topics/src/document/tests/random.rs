//! Documents at random: a patch always makes the one of the other.

use fastrand::Rng;

use super::*;

fn random_name(random: &mut Rng) -> String {
    let names = [
        "a", "b", "c", "", "a/b", "~", "~1", "é", "x\\n", "\\\"", "id", "0", "-",
    ];
    match random.u8(..3) {
        0 => format!("n{}", random.u8(..40)),
        _ => names[random.usize(..names.len())].to_owned(),
    }
}

fn random_scalar(random: &mut Rng) -> String {
    match random.u8(..6) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => format!("{}.50", random.u8(..9)),
        3 => format!("\"{}\"", random_name(random)),
        _ => random.u8(..20).to_string(),
    }
}

fn random_value(random: &mut Rng, depth: u64) -> String {
    if depth == 0 {
        return random_scalar(random);
    }
    match random.u8(..5) {
        0 => random_scalar(random),
        1 | 2 => {
            let count = random.u8(..12);
            let items: Vec<String> = (0..count)
                .map(|_| random_value(random, depth - 1))
                .collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            let count = random.u8(..8) * if random.u8(..9) == 0 { 6 } else { 1 };
            let mut names = std::collections::BTreeMap::new();
            for _ in 0..count {
                let name = random_name(random);
                names.insert((random.u8(..99), name.clone()), name);
            }
            let mut seen = std::collections::HashSet::new();
            let members: Vec<String> = names
                .into_values()
                .filter(|name| seen.insert(name.clone()))
                .map(|name| format!("\"{name}\":{}", random_value(random, depth - 1)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// The same with some parts of it as others are.
fn changed(random: &mut Rng, value: At<'_>) -> String {
    if random.u8(..12) == 0 {
        return random_value(random, 2);
    }
    match value.kind() {
        Kind::Array => {
            let mut items = Vec::new();
            for item in value.items() {
                match random.u8(..10) {
                    0 => {}
                    1 => items.extend([random_value(random, 1), changed(random, item)]),
                    _ => items.push(changed(random, item)),
                }
            }
            if random.u8(..8) == 0 {
                items.reverse();
            }
            format!("[{}]", items.join(","))
        }
        Kind::Object => {
            let mut members = Vec::new();
            for (name, value) in value.members() {
                let name = String::from_utf8(name.to_vec()).unwrap();
                if random.u8(..10) > 0 {
                    members.push(format!("\"{name}\":{}", changed(random, value)));
                }
            }
            if random.u8(..4) == 0 {
                let (number, value) = (random.u16(..1000), random_value(random, 1));
                members.push(format!("\"new{number}\":{value}"));
            }
            if random.u8(..5) == 0 {
                members.reverse();
            }
            format!("{{{}}}", members.join(","))
        }
        _ => String::from_utf8(value.text().to_vec()).unwrap(),
    }
}

#[test]
fn a_patch_makes_one_document_of_the_other() {
    let mut random = Rng::with_seed(0x5eed);
    let mut patches = 0;
    for round in 0..1500 {
        let before = document(&random_value(&mut random, 4));
        let after = changed(&mut random, before.root());
        // A patch of a short document would be longer than it.
        let pad = "x".repeat(random.usize(..3000));
        let padded = |text: &str| document(&format!("[\"{pad}\",{text}]"));
        let (before, after) = (
            padded(&String::from_utf8_lossy(before.text())),
            padded(&after),
        );
        match diff(&before, &after) {
            Change::Nothing => assert!(before.is_same(&after), "{round}"),
            Change::Whole => assert!(!before.is_same(&after), "{round}"),
            Change::Patch(patch) => {
                patches += 1;
                assert!(patch.len() < after.text().len(), "{round}");
                let made = apply(&before, &patch, usize::MAX).unwrap();
                let shown = || format!("{round}: {before:?} {patch:?} {after:?}");
                assert!(
                    made.is_same(&after) && !before.is_same(&after),
                    "{}",
                    shown()
                );
            }
        }
    }
    assert!(patches > 400, "{patches}");
}

#[test]
fn what_is_refused_never_panics() {
    let mut random = Rng::with_seed(7);
    for _ in 0..2000 {
        let mut text = random_value(&mut random, 3).into_bytes();
        for _ in 0..random.u8(1..=3) {
            let at = random.usize(..text.len());
            match random.u8(..3) {
                0 => text[at] = random.u8(..),
                1 => text.truncate(at + 1),
                _ => text.insert(at, b"{}[],:\"\\"[random.usize(..8)]),
            }
        }
        let ours = Document::parse(&text).ok();
        let theirs = serde_json::from_slice::<serde_json::Value>(&text).ok();
        if let Some(ours) = ours {
            let again: serde_json::Value = serde_json::from_slice(ours.text()).unwrap();
            assert_eq!(theirs, Some(again));
        }
    }
}
