//! What may be typed on a screen that asks for input.

use expr::Value;

/// The most digits of a number: all such numbers are exact in JSON.
const DIGITS_MAX: usize = 15;

/// What may be typed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// So many characters, none of them a control character.
    Text { min: usize, max: usize },
    /// A whole number.
    Number { min: i64, max: i64 },
    /// A number with at most so many digits behind the point.
    Decimal { min: f64, max: f64, places: usize },
    /// A secret number of so many digits.
    Pin { digits: usize },
}

impl Rule {
    /// Whether it is secret.
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Pin { .. })
    }

    /// The value of what was typed; `None` when it may not be.
    pub fn read(&self, typed: &str) -> Option<Value> {
        let typed = typed.trim();
        match self {
            Self::Text { min, max } => {
                let length = typed.chars().count();
                let is_plain = !typed.chars().any(char::is_control);
                let fits = (*min..=*max).contains(&length);
                (is_plain && fits).then(|| expr::value::text(typed))
            }
            Self::Number { min, max } => {
                let number: i64 = digits(typed)?.parse().ok()?;
                let is_within = (*min..=*max).contains(&number);
                is_within.then(|| expr::value::integer(number))
            }
            Self::Decimal { min, max, places } => {
                let (whole, behind) = typed.split_once('.').unwrap_or((typed, "0"));
                let is_number = digits(whole).is_some() && digits(behind).is_some();
                if !is_number || behind.len() > *places || whole.len() + behind.len() > DIGITS_MAX {
                    return None;
                }
                let number: f64 = typed.parse().ok()?;
                let is_within = (*min..=*max).contains(&number);
                is_within.then(|| decimal(whole, typed.split_once('.').map(|it| it.1)))
            }
            Self::Pin { digits: length } => {
                let is_pin = typed.len() == *length && digits(typed).is_some();
                is_pin.then(|| expr::value::text(typed))
            }
        }
    }
}

/// A number as JSON writes it: without needless zeros in front.
fn decimal(whole: &str, behind: Option<&str>) -> Value {
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    match behind {
        Some(behind) => expr::value::number(&format!("{whole}.{behind}")),
        None => expr::value::number(whole),
    }
}

fn digits(text: &str) -> Option<&str> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    (is_number && text.len() <= DIGITS_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expr::value::{integer, number, text};

    #[test]
    fn numbers_have_a_range() {
        let rule = Rule::Number { min: 1, max: 500 };
        assert_eq!(rule.read("50"), Some(integer(50)));
        assert_eq!(rule.read(" 007 "), Some(integer(7)));
        for typed in [
            "",
            "0",
            "501",
            "-1",
            "1.5",
            "abc",
            "٥",
            "99999999999999999999",
        ] {
            assert_eq!(rule.read(typed), None, "{typed}");
        }
    }

    #[test]
    fn decimals_keep_what_was_typed() {
        let rule = Rule::Decimal {
            min: 0.5,
            max: 100.0,
            places: 2,
        };
        assert_eq!(rule.read("1.10"), Some(number("1.10")));
        assert_eq!(rule.read("007"), Some(number("7")));
        assert_eq!(rule.read("0.5"), Some(number("0.5")));
        for typed in [
            "", "0.4", "1.123", "1,5", ".5", "5.", "1e2", "100.01", "NaN", "inf",
        ] {
            assert_eq!(rule.read(typed), None, "{typed}");
        }
    }

    #[test]
    fn texts_have_a_length_in_characters() {
        let rule = Rule::Text { min: 2, max: 4 };
        assert_eq!(rule.read("日本*"), Some(text("日本*")));
        for typed in ["", "a", "abcde", "a\u{0}b", &"x".repeat(1 << 20)] {
            assert_eq!(rule.read(typed), None);
        }
    }

    #[test]
    fn pins_keep_their_zeros() {
        let rule = Rule::Pin { digits: 4 };
        assert_eq!(rule.read("0042"), Some(text("0042")));
        for typed in ["42", "00042", "12a4", "1 34"] {
            assert_eq!(rule.read(typed), None, "{typed}");
        }
    }
}
