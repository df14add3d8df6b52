//! Durations, sizes and percentages as people write them. A bare number is refused where a unit is
//! needed.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time: `300ms`, `5s`, `2m`, `24h`, `7d`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub std::time::Duration);

/// A number of bytes: `512B`, `20kB`, `256KiB`, `1MB`, `1MiB`, `1GB`, `1GiB`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// A part of a whole: `20%`. The number is from 0 to 1.
#[derive(Copy, Clone, Debug, PartialEq, PartialOrd)]
pub struct Percentage(pub f64);

/// Units of time and their milliseconds.
const TIMES: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];
/// Units of size and their bytes, the ones to write with first.
const SIZES: &[(&str, u64)] = &[
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let milliseconds = read(
            text,
            TIMES,
            "a duration such as `300ms`, `5s`, `2m` or `24h`",
        )?;
        Ok(Self(std::time::Duration::from_millis(milliseconds)))
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text, SIZES, "a size such as `512B`, `256KiB` or `1MiB`").map(Self)
    }
}

impl FromStr for Percentage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_digit = |it: char| it.is_ascii_digit() || it == '.';
        let digits = text.strip_suffix('%').map(|it| it.trim_end_matches(' '));
        // `parse` takes `+5`, `.5`, `5.` and `1e1`, too.
        let digits = digits.filter(|it| it.chars().all(is_digit) && !it.starts_with('.'));
        let digits = digits.filter(|it| !it.ends_with('.'));
        let number = digits.and_then(|digits| digits.parse::<f64>().ok());
        match number.filter(|number| (0.0..=100.0).contains(number)) {
            Some(number) => Ok(Self(number / 100.0)),
            None => {
                let shown: String = text.chars().take(40).collect();
                let shown = shown.escape_debug();
                Err(format!("`{shown}` is not a percentage from `0%` to `100%`"))
            }
        }
    }
}

fn read(text: &str, units: &[(&str, u64)], expected: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let shown: String = text.chars().take(40).collect();
    let shown = shown.escape_debug();
    if digits > 0 && unit.is_empty() {
        return Err(format!("`{shown}` has no unit: expected {expected}"));
    }
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, factor)| *factor);
    let (Some(factor), true) = (factor, digits > 0) else {
        return Err(format!("`{shown}` is not {expected}"));
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .filter(|value| *value <= i64::MAX as u64)
        .ok_or_else(|| format!("`{shown}` is too large"))
}

fn write(value: u64, units: &[(&str, u64)], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
    let (unit, factor) = units.iter().find(fits).copied().unwrap_or(("", 1));
    let unit = if value == 0 {
        units.last().map_or("", |(unit, _)| unit)
    } else {
        unit
    };
    write!(formatter, "{}{unit}", value / factor)
}

impl fmt::Display for Duration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0.as_millis() as u64, TIMES, formatter)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, SIZES, formatter)
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 0.07 * 100 is not 7.
        write!(formatter, "{}%", (self.0 * 1e6).round() / 1e4)
    }
}

macro_rules! textual {
    ($type:ident, $format:literal, $pattern:literal) => {
        impl $type {
            /// What texts look like, as a regular expression for schemas.
            pub const PATTERN: &'static str = $pattern;
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "format": $format, "pattern": $pattern })
            }
        }
    };
}

textual!(Duration, "duration", "^[0-9]+(ms|s|m|h|d)$");
textual!(ByteSize, "byte-size", "^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB)$");

textual!(Percentage, "percentage", r"^[0-9]+(\.[0-9]+)? *%$");

/// Reads a text in one of the formats of this crate, to be compared with others of the same format;
/// none for a format it does not know.
pub(crate) fn read_format(format: &str, text: &str) -> Option<Result<f64, String>> {
    match format {
        "duration" => Some(text.parse::<Duration>().map(|it| it.0.as_secs_f64())),
        "byte-size" => Some(text.parse::<ByteSize>().map(|it| it.0 as f64)),
        "percentage" => Some(text.parse::<Percentage>().map(|it| it.0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were() {
        for text in ["0ms", "300ms", "5s", "2m", "24h", "7d", "1500ms"] {
            let back = text.parse::<Duration>().unwrap().to_string();
            assert_eq!(back, if text == "24h" { "1d" } else { text });
        }
        for text in ["0B", "512B", "20kB", "256KiB", "1MB", "3MiB", "1GiB", "5GB"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        for text in ["0%", "7%", "12.5%", "100%"] {
            assert_eq!(text.parse::<Percentage>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_has_no_unit_or_is_none_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "1.5s",
            "5S",
            "5sec",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
        for text in [
            "", "5", "%", "101%", "-1%", "+5%", ".5%", "5.%", "1e1%", " 5%", "NaN%",
        ] {
            assert!(text.parse::<Percentage>().is_err(), "{text}");
        }
        for text in ["", "5", "5kb", "5K", "5 MiB", "99999999999GiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(
            "5".parse::<Duration>().unwrap_err(),
            "`5` has no unit: expected a duration such as `300ms`, `5s`, `2m` or `24h`"
        );
    }
}
