//! Names of flows and steps.

/// The rule, for hints.
pub(crate) const NAME_RULE: &str =
    "a name begins with a letter, has letters, digits, `_`, `.` and `-`, and at most 100 of them";

/// The rule as a regular expression, for the schema.
pub(crate) const NAME_PATTERN: &str = "^[A-Za-z][A-Za-z0-9_.-]{0,99}$";

/// Whether a flow or step can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 100
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for name in ["a", "orders-in", "Orders_2.x", &"a".repeat(100)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "1a", "-a", "a b", "ä", "a/b", "a\n", &"a".repeat(101)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
