//! "Did you mean".

/// The candidate nearest to a word, when one is near enough to be what was meant.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A long word is nobody's typing error, and the distance of long words costs time.
    let word = word.to_lowercase();
    if word.chars().count() > 40 {
        return None;
    }
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&word, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.chars().count() / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_suggested() {
        let names = ["forward", "convert", "reply", "log"];
        assert_eq!(suggest("foward", names), Some("forward"));
        assert_eq!(suggest("Reply", names), Some("reply"));
        assert_eq!(suggest("relpy", names), Some("reply"));
        assert_eq!(suggest("loop", names), None);
        assert_eq!(suggest("publish", names), None);
        assert_eq!(suggest(&"x".repeat(100_000), names), None);
    }
}
