//! A stable sort whose comparison may fail, and may contradict itself: jq's order of NaN does.

use std::cmp::Ordering;

/// The order of items, as indices.
pub(super) fn order<T, E>(
    items: &[T],
    mut compare: impl FnMut(&T, &T) -> Result<Ordering, E>,
) -> Result<Vec<usize>, E> {
    let mut from: Vec<usize> = (0..items.len()).collect();
    let mut to: Vec<usize> = Vec::with_capacity(items.len());
    let mut width = 1;
    while width < items.len() {
        to.clear();
        for pair in from.chunks(width * 2) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right) {
                let is_behind = match (items.get(*first), items.get(*second)) {
                    (Some(first), Some(second)) => compare(first, second)? == Ordering::Greater,
                    _ => false,
                };
                if is_behind {
                    to.push(*second);
                    right = right_rest;
                } else {
                    to.push(*first);
                    left = left_rest;
                }
            }
            to.extend_from_slice(left);
            to.extend_from_slice(right);
        }
        std::mem::swap(&mut from, &mut to);
        width *= 2;
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn it_sorts_stably() {
        let mut random = Rng::with_seed(7);
        for length in 0..200 {
            let items: Vec<(u32, usize)> = (0..length).map(|at| (random.u32(..16), at)).collect();
            let order = order(&items, |a, b| Ok::<_, ()>(a.0.cmp(&b.0))).unwrap();
            let sorted: Vec<_> = order.into_iter().map(|at| items[at]).collect();
            assert!(sorted.is_sorted());
            assert_eq!(sorted.len(), length);
        }
    }

    #[test]
    fn a_contradiction_is_no_failure() {
        let items: Vec<u32> = (0..100).collect();
        assert!(order(&items, |_, _| Ok::<_, ()>(Ordering::Greater)).is_ok());
        assert!(order(&items, |_, _| Err(())).is_err());
    }
}
