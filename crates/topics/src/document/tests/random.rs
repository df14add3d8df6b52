//! Documents by chance: a patch always makes the one of the other.

use super::*;

/// A small generator (xorshift): the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn name(&mut self) -> String {
        let names = [
            "a", "b", "c", "", "a/b", "~", "~1", "é", "x\\n", "\\\"", "id", "0", "-",
        ];
        match self.below(3) {
            0 => format!("n{}", self.below(40)),
            _ => names[self.below(names.len() as u64) as usize].to_owned(),
        }
    }

    fn scalar(&mut self) -> String {
        match self.below(6) {
            0 => "null".to_owned(),
            1 => "true".to_owned(),
            2 => format!("{}.50", self.below(9)),
            3 => format!("\"{}\"", self.name()),
            _ => self.below(20).to_string(),
        }
    }

    fn value(&mut self, depth: u64) -> String {
        if depth == 0 {
            return self.scalar();
        }
        match self.below(5) {
            0 => self.scalar(),
            1 | 2 => {
                let count = self.below(12);
                let items: Vec<String> = (0..count).map(|_| self.value(depth - 1)).collect();
                format!("[{}]", items.join(","))
            }
            _ => {
                let count = self.below(8) * if self.below(9) == 0 { 6 } else { 1 };
                let mut names = std::collections::BTreeMap::new();
                for _ in 0..count {
                    let name = self.name();
                    names.insert((self.below(99), name.clone()), name);
                }
                let mut seen = std::collections::HashSet::new();
                let members: Vec<String> = names
                    .into_values()
                    .filter(|name| seen.insert(name.clone()))
                    .map(|name| format!("\"{name}\":{}", self.value(depth - 1)))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// The same with some parts of it as others are.
    fn changed(&mut self, value: At<'_>) -> String {
        if self.below(12) == 0 {
            return self.value(2);
        }
        match value.kind() {
            Kind::Array => {
                let mut items = Vec::new();
                for item in value.items() {
                    match self.below(10) {
                        0 => {}
                        1 => items.extend([self.value(1), self.changed(item)]),
                        _ => items.push(self.changed(item)),
                    }
                }
                if self.below(8) == 0 {
                    items.reverse();
                }
                format!("[{}]", items.join(","))
            }
            Kind::Object => {
                let mut members = Vec::new();
                for (name, value) in value.members() {
                    let name = String::from_utf8(name.to_vec()).unwrap();
                    if self.below(10) > 0 {
                        members.push(format!("\"{name}\":{}", self.changed(value)));
                    }
                }
                if self.below(4) == 0 {
                    members.push(format!("\"new{}\":{}", self.below(1000), self.value(1)));
                }
                if self.below(5) == 0 {
                    members.reverse();
                }
                format!("{{{}}}", members.join(","))
            }
            _ => String::from_utf8(value.text().to_vec()).unwrap(),
        }
    }
}

#[test]
fn a_patch_makes_one_document_of_the_other() {
    let mut dice = Dice(0x5eed);
    let mut patches = 0;
    for round in 0..1500 {
        let before = document(&dice.value(4));
        let after = dice.changed(before.root());
        // A patch of a short document would be longer than it.
        let pad = "x".repeat(dice.below(3000) as usize);
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
    let mut dice = Dice(7);
    for _ in 0..2000 {
        let mut text = dice.value(3).into_bytes();
        for _ in 0..1 + dice.below(3) {
            let at = dice.below(text.len() as u64) as usize;
            match dice.below(3) {
                0 => text[at] = dice.below(256) as u8,
                1 => text.truncate(at + 1),
                _ => text.insert(at, b"{}[],:\"\\"[dice.below(8) as usize]),
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
