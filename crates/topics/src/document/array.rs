//! What has changed from one list to another: items that stay are found as `diff` finds lines
//! (Myers, "An O(ND) difference algorithm", 1986), within a bound; of the others those that are
//! about the same thing are compared.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::diff::{Differ, TooLong};
use super::{At, Kind};

/// The most items that may differ for those that stay to be looked for.
const DIFFERENCES_MAX: usize = 256;

/// Adds what makes the second list of the first.
pub(super) fn diff(differ: &mut Differ, before: At<'_>, after: At<'_>) -> Result<(), TooLong> {
    let before: Vec<At<'_>> = before.items().collect();
    let after: Vec<At<'_>> = after.items().collect();
    let same = |(left, right): &(&At<'_>, &At<'_>)| left.text() == right.text();
    let start = before.iter().zip(&after).take_while(same).count();
    let before = before.get(start..).unwrap_or_default();
    let after = after.get(start..).unwrap_or_default();
    let backwards = before.iter().rev().zip(after.iter().rev());
    let end = backwards.take_while(same).count();
    let before = before.get(..before.len() - end).unwrap_or_default();
    let after = after.get(..after.len() - end).unwrap_or_default();
    let stays = pairs(differ, before, after, |it| it.text());
    let mut at = start;
    let gaps = Gaps::new(before, after, &stays);
    for (before, after, _) in gaps {
        gap(differ, before, after, at)?;
        // What stays behind the gap has one item.
        at += after.len() + 1;
    }
    Ok(())
}

/// Items of which none stays as it is.
fn gap(
    differ: &mut Differ,
    before: &[At<'_>],
    after: &[At<'_>],
    mut at: usize,
) -> Result<(), TooLong> {
    let related = match before.len().max(after.len()) {
        0 | 1 => Vec::new(),
        _ => pairs(differ, before, after, identity),
    };
    for (before, after, pair) in Gaps::new(before, after, &related) {
        replace(differ, before, after, at)?;
        at += after.len();
        if let Some((before, after)) = pair {
            differ.item(at, |differ| differ.value(before, after))?;
            at += 1;
        }
    }
    Ok(())
}

/// Items that have nothing to do with each other: one after the other.
fn replace(
    differ: &mut Differ,
    before: &[At<'_>],
    after: &[At<'_>],
    at: usize,
) -> Result<(), TooLong> {
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        differ.item(at + number, |differ| differ.value(*before, *after))?;
    }
    let common = before.len().min(after.len());
    for _ in common..before.len() {
        differ.item(at + common, |differ| differ.put("remove", None))?;
    }
    for (number, added) in after.iter().enumerate().skip(common) {
        differ.item(at + number, |differ| differ.put("add", Some(*added)))?;
    }
    Ok(())
}

/// What tells an item from others when it changes: the first member of an object, which is its `id`
/// more often than not.
fn identity(item: At<'_>) -> &[u8] {
    if item.kind() != Kind::Object {
        return &[];
    }
    let first = item.members().next();
    let value = first.map(|(_, value)| value);
    let is_short = |it: &At<'_>| matches!(it.kind(), Kind::Text | Kind::Number);
    value.filter(is_short).map_or(&[], At::text)
}

/// The items before each pair, the items before it in the other list, and the pair.
struct Gaps<'s, 'd> {
    before: &'s [At<'d>],
    after: &'s [At<'d>],
    pairs: &'s [(usize, usize)],
    from: (usize, usize),
    is_over: bool,
}

type Gap<'s, 'd> = (&'s [At<'d>], &'s [At<'d>], Option<(At<'d>, At<'d>)>);

impl<'s, 'd> Gaps<'s, 'd> {
    fn new(before: &'s [At<'d>], after: &'s [At<'d>], pairs: &'s [(usize, usize)]) -> Self {
        Self {
            before,
            after,
            pairs,
            from: (0, 0),
            is_over: false,
        }
    }
}

impl<'s, 'd> Iterator for Gaps<'s, 'd> {
    type Item = Gap<'s, 'd>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let (left, right) = match self.pairs.split_first() {
            Some((pair, rest)) => {
                self.pairs = rest;
                *pair
            }
            None => {
                self.is_over = true;
                (self.before.len(), self.after.len())
            }
        };
        let before = self.before.get(self.from.0..left).unwrap_or_default();
        let after = self.after.get(self.from.1..right).unwrap_or_default();
        let pair = self.before.get(left).zip(self.after.get(right));
        self.from = (left + 1, right + 1);
        Some((before, after, pair.map(|(left, right)| (*left, *right))))
    }
}

/// Pairs of items with the same key, in the order of both lists; none when the lists differ too
/// much. Items with an empty key are in no pair.
fn pairs<'d>(
    differ: &mut Differ,
    before: &[At<'d>],
    after: &[At<'d>],
    key: impl Fn(At<'d>) -> &'d [u8],
) -> Vec<(usize, usize)> {
    if before.is_empty() || after.is_empty() {
        return Vec::new();
    }
    // What has no key is like nothing else.
    let mut nothing = 0;
    let mut hash = |item: &At<'d>| {
        let key = key(*item);
        if key.is_empty() {
            nothing += 1;
            return (true, nothing);
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        (false, hasher.finish())
    };
    let before: Vec<_> = before.iter().map(&mut hash).collect();
    let after: Vec<_> = after.iter().map(&mut hash).collect();
    common(&before, &after, &mut differ.steps).unwrap_or_default()
}

type Hashed = (bool, u64);

/// A longest common row of two lists, when it can be found within the bounds.
fn common(before: &[Hashed], after: &[Hashed], steps: &mut usize) -> Option<Vec<(usize, usize)>> {
    let (rows, columns) = (before.len() as isize, after.len() as isize);
    let most = (before.len() + after.len()).min(DIFFERENCES_MAX);
    let middle = most as isize + 1;
    // How far the way on each diagonal leads.
    let mut reach = vec![0_isize; 2 * most + 3];
    let mut history = Vec::new();
    for differences in 0..=most as isize {
        history.push(reach.clone());
        for diagonal in (-differences..=differences).step_by(2) {
            let place = |at: isize| reach.get((middle + at) as usize).copied().unwrap_or(0);
            let is_down = diagonal == -differences
                || diagonal != differences && place(diagonal - 1) < place(diagonal + 1);
            let mut x = match is_down {
                true => place(diagonal + 1),
                false => place(diagonal - 1) + 1,
            };
            let mut y = x - diagonal;
            let from = x;
            while x < rows && y < columns && before.get(x as usize) == after.get(y as usize) {
                (x, y) = (x + 1, y + 1);
            }
            *steps = steps.checked_sub(1 + (x - from) as usize)?;
            if let Some(place) = reach.get_mut((middle + diagonal) as usize) {
                *place = x;
            }
            if x >= rows && y >= columns {
                return Some(way_back(&history, (rows, columns), middle));
            }
        }
        // Each round is a copy of what is reached.
        *steps = steps.checked_sub(most / 8)?;
    }
    None
}

/// The pairs on the way that was found.
fn way_back(
    history: &[Vec<isize>],
    (mut x, mut y): (isize, isize),
    middle: isize,
) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (differences, reach) in history.iter().enumerate().rev() {
        let differences = differences as isize;
        let place = |at: isize| reach.get((middle + at) as usize).copied().unwrap_or(0);
        let diagonal = x - y;
        let is_down = diagonal == -differences
            || diagonal != differences && place(diagonal - 1) < place(diagonal + 1);
        let (from_x, from_y) = match (differences, is_down) {
            (0, _) => (0, 0),
            (_, true) => (place(diagonal + 1), place(diagonal + 1) - diagonal - 1),
            (_, false) => (place(diagonal - 1), place(diagonal - 1) - diagonal + 1),
        };
        while x > from_x && y > from_y {
            (x, y) = (x - 1, y - 1);
            pairs.push((x as usize, y as usize));
        }
        (x, y) = (from_x, from_y);
    }
    pairs.reverse();
    pairs
}
