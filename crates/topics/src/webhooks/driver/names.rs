//! Numbers of endpoints by name. The names are those of the entries, so that one takes few bytes.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::entries::Entries;

/// Numbers of endpoints by name.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// The name of an entry.
fn name(entries: &Entries, at: u32) -> &str {
    let entry = entries.get(at as usize);
    // invariant: a number leaves the table before its entry is freed.
    entry.map_or("", |it| &*it.plan.state.name)
}

impl Names {
    /// The number of the entry of this name.
    pub fn find(&self, of: &str, entries: &Entries) -> Option<usize> {
        let is_it = |at: &u32| name(entries, *at) == of;
        let found = self.numbers.find(self.hasher.hash_one(of), is_it);
        found.map(|at| *at as usize)
    }

    /// Maps the entry's name to it, and replaces the entry that had the name.
    pub fn add(&mut self, at: usize, entries: &Entries) {
        // There are not so many.
        let Ok(at) = u32::try_from(at) else { return };
        let of = name(entries, at);
        if let Some(before) = self.find(of, entries) {
            self.remove(of, before);
        }
        let Self { numbers, hasher } = self;
        let hash = |of: &str| hasher.hash_one(of);
        numbers.insert_unique(hash(of), at, |other| hash(name(entries, *other)));
    }

    /// The name does not stand for this entry any more, if it did.
    pub fn remove(&mut self, of: &str, at: usize) {
        let hash = self.hasher.hash_one(of);
        if let Ok(found) = self.numbers.find_entry(hash, |it| *it as usize == at) {
            found.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fastrand::Rng;

    use super::super::entry::tests::named;
    use super::*;

    #[test]
    fn names_stand_for_the_entries_that_have_got_them_last() {
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let (mut names, mut entries) = (Names::default(), Entries::default());
            let (mut model, mut all) = (HashMap::new(), Vec::new());
            for _ in 0..300 {
                let of = format!("wh_{}", random.u8(..60));
                match random.u8(..4) {
                    0 | 1 => {
                        let at = entries.add(named(&of));
                        names.add(at, &entries);
                        model.insert(of.clone(), at);
                        all.push((of.clone(), at));
                    }
                    2 if !all.is_empty() => {
                        let (of, at) = all.swap_remove(random.usize(..all.len()));
                        names.remove(&of, at);
                        entries.remove(at).unwrap();
                        if model.get(&of) == Some(&at) {
                            model.remove(&of);
                        }
                    }
                    _ => {}
                }
                assert_eq!(names.find(&of, &entries), model.get(&of).copied(), "{seed}");
            }
            for (of, at) in &model {
                assert_eq!(names.find(of, &entries), Some(*at), "{seed}");
            }
            assert_eq!(names.numbers.len(), model.len());
        }
    }
}
