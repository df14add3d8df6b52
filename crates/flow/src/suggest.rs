//! "Did you mean": the known word nearest to an unknown one.

/// A hint with the candidate nearest to the word, when one is near.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    config::suggest(word, candidates).map(|near| format!("did you mean `{near}`?"))
}
