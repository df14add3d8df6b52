//! Numbers of subscribers in one form, so that one subscriber is one.

/// A number in E.164 form, `+` and at most 15 digits; `None` when it is none. `country` is the
/// calling code of numbers that begin with one 0.
pub(crate) fn normalise(written: &str, country: Option<&str>) -> Option<String> {
    if written.len() > 40 {
        return None;
    }
    let is_filling = |it: char| matches!(it, ' ' | '-' | '.' | '(' | ')');
    let digits: String = written.chars().filter(|it| !is_filling(*it)).collect();
    let digits = match digits.strip_prefix('+').or(digits.strip_prefix("00")) {
        Some(international) => international.to_owned(),
        None => match digits.strip_prefix('0') {
            Some(national) => format!("{}{national}", country?),
            None => digits,
        },
    };
    let is_number = digits.bytes().all(|it| it.is_ascii_digit()) && !digits.starts_with('0');
    (is_number && (7..=15).contains(&digits.len())).then(|| format!("+{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subscriber_has_one_form() {
        // A `+` in a form that was not escaped is a space.
        for written in [
            "+254711000001",
            "254711000001",
            " 254711000001",
            "00254 711-000-001",
        ] {
            let found = normalise(written, None);
            assert_eq!(found.as_deref(), Some("+254711000001"), "{written}");
        }
        let national = normalise("0711 000 001", Some("254"));
        assert_eq!(national.as_deref(), Some("+254711000001"));
        assert_eq!(normalise("0711000001", None), None);
        let long = "1".repeat(1 << 20);
        for written in [
            "",
            "+",
            "12345",
            "+0711000001",
            "2547110000011111",
            "25471100000a",
            &long,
        ] {
            assert_eq!(normalise(written, Some("254")), None, "{written:.20}");
        }
    }
}
