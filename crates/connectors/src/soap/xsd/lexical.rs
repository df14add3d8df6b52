//! Which texts the types of the standard have (XML Schema Part 2, section 3), and numbers that are
//! compared without rounding.

use std::borrow::Cow;
use std::cmp::Ordering;

use expr::xml::is_plain_name;

use crate::soap::xsd::builtin::{Time, Token, WhiteSpace};

/// The most digits that an exponent may add to a number.
const EXPONENT_MAX: i64 = 400;

/// A text with its white space treated.
pub fn normalized(text: &str, space: WhiteSpace) -> Cow<'_, str> {
    let is_space = |it: char| matches!(it, ' ' | '\t' | '\n' | '\r');
    match space {
        WhiteSpace::Preserve => Cow::Borrowed(text),
        WhiteSpace::Replace if !text.contains(['\t', '\n', '\r']) => Cow::Borrowed(text),
        WhiteSpace::Replace => Cow::Owned(text.replace(['\t', '\n', '\r'], " ")),
        WhiteSpace::Collapse => {
            let text = text.trim_matches(is_space);
            if !text.contains(is_space) {
                return Cow::Borrowed(text);
            }
            let words: Vec<&str> = text.split(is_space).filter(|it| !it.is_empty()).collect();
            Cow::Owned(words.join(" "))
        }
    }
}

/// Whether a text is such a token.
pub fn is_token(token: Token, text: &str) -> bool {
    let is_name_rest = |it: char| it == ':' || is_plain_name(&format!("a{it}"));
    match token {
        Token::Any => true,
        Token::Nmtoken => !text.is_empty() && text.chars().all(is_name_rest),
        Token::Plain => is_plain_name(text),
        Token::Name => {
            let first = text.chars().next();
            first.is_some_and(|it| it == ':' || is_plain_name(&it.to_string()))
                && text.chars().all(is_name_rest)
        }
        Token::Language => {
            let mut parts = text.split('-');
            let is_sound = |part: &str| (1..=8).contains(&part.len());
            let letters = |it: &str| it.bytes().all(|byte| byte.is_ascii_alphabetic());
            let both = |it: &str| it.bytes().all(|byte| byte.is_ascii_alphanumeric());
            parts.next().is_some_and(|it| is_sound(it) && letters(it))
                && parts.all(|it| is_sound(it) && both(it))
        }
    }
}

/// A decimal number without rounding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// Without zeros in front; empty for 0.
    whole: String,
    /// As it was written.
    fraction: String,
}

impl Decimal {
    /// Reads what `xs:decimal` allows.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let are_digits = |it: &str| it.bytes().all(|byte| byte.is_ascii_digit());
        let is_sound = are_digits(whole) && are_digits(fraction);
        (is_sound && whole.len() + fraction.len() > 0).then(|| Self {
            is_negative,
            whole: whole.trim_start_matches('0').to_owned(),
            fraction: fraction.to_owned(),
        })
    }

    /// Reads what JSON allows, an exponent undone.
    pub fn parse_json(text: &str) -> Option<Self> {
        let Some((digits, exponent)) = text.split_once(['e', 'E']) else {
            return Self::parse(text);
        };
        let exponent: i64 = exponent.parse().ok()?;
        if exponent.abs() > EXPONENT_MAX {
            return None;
        }
        let Self {
            is_negative,
            mut whole,
            mut fraction,
        } = Self::parse(digits)?;
        for _ in 0..exponent.max(0) {
            let next = if fraction.is_empty() {
                '0'
            } else {
                fraction.remove(0)
            };
            whole.push(next);
        }
        for _ in 0..(-exponent).max(0) {
            fraction.insert(0, whole.pop().unwrap_or('0'));
        }
        Some(Self {
            is_negative,
            whole: whole.trim_start_matches('0').to_owned(),
            fraction,
        })
    }

    /// Whether nothing but zeros stands behind the point.
    pub fn is_whole(&self) -> bool {
        self.fraction.bytes().all(|it| it == b'0')
    }

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.is_whole()
    }

    /// As JSON and XML write it, what stands behind the point kept.
    pub fn text(&self) -> String {
        let sign = if self.is_negative && !self.is_zero() {
            "-"
        } else {
            ""
        };
        let whole = if self.whole.is_empty() {
            "0"
        } else {
            &self.whole
        };
        match self.fraction.as_str() {
            "" => format!("{sign}{whole}"),
            fraction => format!("{sign}{whole}.{fraction}"),
        }
    }

    /// The same without what stands behind the point.
    pub fn whole_text(&self) -> String {
        let whole = Self {
            fraction: String::new(),
            ..self.clone()
        };
        whole.text()
    }

    /// How many digits it has, and how many behind the point, zeros at either end left out.
    pub fn digits(&self) -> (usize, usize) {
        let fraction = self.fraction.trim_end_matches('0').len();
        (self.whole.len() + fraction, fraction)
    }

    /// Which is greater.
    pub fn compare(&self, other: &Self) -> Ordering {
        let sign = |it: &Self| match (it.is_zero(), it.is_negative) {
            (true, _) => 0,
            (_, true) => -1,
            _ => 1,
        };
        let size = || {
            let lengths = self.whole.len().cmp(&other.whole.len());
            let fractions = || {
                let trimmed = |it: &Self| it.fraction.trim_end_matches('0').to_owned();
                trimmed(self).cmp(&trimmed(other))
            };
            lengths
                .then_with(|| self.whole.cmp(&other.whole))
                .then_with(fractions)
        };
        match (sign(self), sign(other)) {
            (1, 1) => size(),
            (-1, -1) => size().reverse(),
            (own, others) => own.cmp(&others),
        }
    }
}

/// Whether a text is an integer within a range.
pub fn is_integer(text: &str, min: Option<i128>, max: Option<i128>) -> bool {
    let Some(number) = Decimal::parse(text).filter(|_| !text.contains('.')) else {
        return false;
    };
    let within = |limit: Option<i128>, wrong: Ordering| {
        let limit = limit.and_then(|limit| Decimal::parse(&limit.to_string()));
        limit.is_none_or(|limit| number.compare(&limit) != wrong)
    };
    within(min, Ordering::Less) && within(max, Ordering::Greater)
}

/// Whether a text is one of `xs:double`.
pub fn is_float(text: &str) -> bool {
    if matches!(text, "INF" | "+INF" | "-INF" | "NaN") {
        return true;
    }
    match text.split_once(['e', 'E']) {
        None => Decimal::parse(text).is_some(),
        Some((digits, exponent)) => {
            Decimal::parse(digits).is_some()
                && is_integer(exponent, None, None)
                && exponent.len() < 20
        }
    }
}

/// Whether a text is pairs of hexadecimal digits.
pub fn is_hex(text: &str) -> bool {
    text.len().is_multiple_of(2) && text.bytes().all(|it| it.is_ascii_hexdigit())
}

/// Whether a text is base64 (RFC 4648, section 4), white space within it left out.
pub fn is_base64(text: &str) -> bool {
    let mut bytes = text.bytes().filter(|it| *it != b' ').peekable();
    let (mut count, mut padding) = (0, 0);
    while let Some(byte) = bytes.next() {
        let is_digit = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        match byte {
            b'=' => padding += 1,
            _ if is_digit && padding == 0 => {}
            _ => return false,
        }
        count += 1;
        if bytes.peek().is_none() && padding > 2 {
            return false;
        }
    }
    count % 4 == 0
}

/// Whether a text is a qualified name with its namespace: `{namespace}name`, or `name`.
pub fn is_name(text: &str) -> bool {
    let local = match text.strip_prefix('{') {
        Some(rest) => rest.split_once('}').map(|(_, local)| local),
        None => Some(text),
    };
    local.is_some_and(is_plain_name)
}

/// Whether a text is such a time (XML Schema Part 2, sections 3.2.6 to 3.2.14).
pub fn is_time(time: Time, text: &str) -> bool {
    if time == Time::Duration {
        return is_duration(text);
    }
    let mut cursor = Cursor(text);
    let is_sound = match time {
        Time::DateTime | Time::Stamp => cursor.date() && cursor.is("T") && cursor.time(),
        Time::Date => cursor.date(),
        Time::Time => cursor.time(),
        Time::YearMonth => cursor.year().is_some() && cursor.is("-") && cursor.month().is_some(),
        Time::Year => cursor.year().is_some(),
        Time::MonthDay => cursor.is("--") && cursor.month_day(None),
        Time::Month => cursor.is("--") && cursor.month().is_some(),
        Time::Day => cursor.is("---") && cursor.two(1..=31).is_some(),
        Time::Duration => false,
    };
    let has_zone = !cursor.0.is_empty();
    is_sound && cursor.zone() && (has_zone || time != Time::Stamp)
}

struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    fn is(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Two digits within a range.
    fn two(&mut self, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
        let digits = self.0.get(..2)?;
        let number = digits.bytes().all(|it| it.is_ascii_digit());
        let number = number.then(|| digits.parse().ok()).flatten()?;
        self.0 = self.0.get(2..).unwrap_or_default();
        Some(number).filter(|it| range.contains(it))
    }

    /// Whether it is a leap year.
    fn year(&mut self) -> Option<bool> {
        let digits = self.0.strip_prefix('-').unwrap_or(self.0);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        let year = digits.get(..length)?;
        self.0 = digits.get(length..)?;
        let is_sound = length >= 4 && !(length > 4 && year.starts_with('0'));
        // The last digits tell: 400 divides 10000.
        let last: u32 = year.get(length.saturating_sub(4)..)?.parse().ok()?;
        let is_leap =
            last.is_multiple_of(4) && (!last.is_multiple_of(100) || last.is_multiple_of(400));
        is_sound.then_some(is_leap)
    }

    fn month(&mut self) -> Option<u32> {
        self.two(1..=12)
    }

    fn month_day(&mut self, is_leap: Option<bool>) -> bool {
        let Some(month) = self.month() else {
            return false;
        };
        let days = match month {
            2 if is_leap == Some(false) => 28,
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        self.is("-") && self.two(1..=days).is_some()
    }

    fn date(&mut self) -> bool {
        let leap = self.year();
        leap.is_some() && self.is("-") && self.month_day(leap)
    }

    fn time(&mut self) -> bool {
        let Some(hour) = self.two(0..=24) else {
            return false;
        };
        let mut sixty = || match self.is(":") {
            true => self.two(0..=59),
            false => None,
        };
        let (Some(minutes), Some(seconds)) = (sixty(), sixty()) else {
            return false;
        };
        let mut is_zero = minutes == 0 && seconds == 0;
        if self.is(".") {
            let length = self.0.bytes().take_while(u8::is_ascii_digit).count();
            let digits = self.0.get(..length).unwrap_or_default();
            is_zero &= digits.bytes().all(|it| it == b'0');
            self.0 = self.0.get(length..).unwrap_or_default();
            if length == 0 {
                return false;
            }
        }
        hour < 24 || is_zero
    }

    /// A time zone, or nothing, and then the end.
    fn zone(&mut self) -> bool {
        if self.0.is_empty() || self.0 == "Z" {
            return true;
        }
        if !self.is("+") && !self.is("-") {
            return false;
        }
        let hours = self.two(0..=14);
        let minutes = if self.is(":") { self.two(0..=59) } else { None };
        match (hours, minutes) {
            (Some(14), Some(minutes)) => minutes == 0 && self.0.is_empty(),
            (Some(_), Some(_)) => self.0.is_empty(),
            _ => false,
        }
    }
}

fn is_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('-').unwrap_or(text).strip_prefix('P') else {
        return false;
    };
    let (date, time) = match rest.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (rest, None),
    };
    let parts = |text: &str, units: &str, has_fraction: bool| -> Option<usize> {
        let (mut rest, mut units, mut count) = (text, units.chars(), 0);
        while !rest.is_empty() {
            let at = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
            let (number, behind) = rest.split_at_checked(at)?;
            let unit = behind.chars().next()?;
            units.by_ref().find(|it| *it == unit)?;
            let is_plain = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
            let with_point = has_fraction && unit == 'S' && is_fraction(number);
            (is_plain || with_point).then_some(())?;
            rest = behind.get(1..)?;
            count += 1;
        }
        Some(count)
    };
    let date = parts(date, "YMD", false);
    match time {
        None => date.is_some_and(|it| it > 0),
        Some(time) => date.is_some() && parts(time, "HMS", true).is_some_and(|it| it > 0),
    }
}

fn is_fraction(number: &str) -> bool {
    let are_digits = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    number
        .split_once('.')
        .is_some_and(|(whole, fraction)| are_digits(whole) && are_digits(fraction))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soap::xsd::builtin::Builtin;

    #[test]
    fn texts_of_every_type() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("boolean", &["true", "0"], &["True", "yes", ""]),
            (
                "int",
                &["-2147483648", "+7", "007"],
                &["2147483648", "1.0", "", "1e2"],
            ),
            (
                "unsignedLong",
                &["18446744073709551615"],
                &["-1", "18446744073709551616"],
            ),
            (
                "integer",
                &["123456789012345678901234567890123456789012"],
                &["a"],
            ),
            ("negativeInteger", &["-1"], &["0", "-0"]),
            (
                "decimal",
                &["1.", ".5", "-0.10", "+1"],
                &["1e3", ".", "-", "1,5"],
            ),
            (
                "double",
                &["1e5", "INF", "-INF", "NaN", "1.5E-3"],
                &["inf", "1e", "e5"],
            ),
            (
                "date",
                &[
                    "2024-02-29",
                    "2023-01-31Z",
                    "-0044-03-15",
                    "12026-01-01+14:00",
                ],
                &[
                    "2023-02-29",
                    "2023-13-01",
                    "23-01-01",
                    "02023-01-01",
                    "2023-01-01+15:00",
                ],
            ),
            (
                "dateTime",
                &[
                    "2023-01-31T23:59:59.123+01:00",
                    "2023-01-31T24:00:00",
                    "2000-02-29T00:00:00Z",
                ],
                &[
                    "2023-01-31",
                    "2023-01-31T24:00:01",
                    "2023-01-31T1:00:00",
                    "2023-01-31T01:00",
                ],
            ),
            (
                "dateTimeStamp",
                &["2023-01-31T00:00:00Z"],
                &["2023-01-31T00:00:00"],
            ),
            (
                "time",
                &["00:00:00", "23:59:59.5Z"],
                &["24:00:01", "1:00:00", "00:00:00."],
            ),
            ("gYearMonth", &["2023-01"], &["2023-13"]),
            ("gMonthDay", &["--02-29"], &["--02-30", "-02-01"]),
            ("gDay", &["---31"], &["---32", "--1"]),
            ("gMonth", &["--12"], &["--13"]),
            ("gYear", &["2023", "-0001"], &["23"]),
            (
                "duration",
                &["P1Y", "PT1.5S", "-P1DT2H", "P1Y2M3DT4H5M6S"],
                &["P", "PT", "P1S", "1D"],
            ),
            ("hexBinary", &["", "0aFF"], &["0", "0g"]),
            (
                "base64Binary",
                &["", "YQ==", "Y Q = ="],
                &["YQ", "Y===", "=YQ=", "Y*=="],
            ),
            ("language", &["en", "en-GB"], &["e1", "", "toolonglanguage"]),
            ("NMTOKEN", &["1a:b"], &["a b", ""]),
            ("NCName", &["a-b"], &["1a", "a:b"]),
            ("QName", &["{urn:x}a", "a"], &["p:a", "{urn:x}", ""]),
        ];
        for (name, good, bad) in cases {
            let builtin = Builtin::of_name(name).unwrap();
            good.iter()
                .for_each(|it| assert!(builtin.fits(it), "{name} {it}"));
            bad.iter()
                .for_each(|it| assert!(!builtin.fits(it), "{name} {it}"));
        }
        assert_eq!(Builtin::of_name("anyType"), None);
    }

    #[test]
    fn numbers_are_exact() {
        let json = |text: &str| Decimal::parse_json(text).map(|it| it.text());
        assert_eq!(json("1.50e2").as_deref(), Some("150"));
        assert_eq!(json("15e-3").as_deref(), Some("0.015"));
        assert_eq!(json("-0.0").as_deref(), Some("0.0"));
        assert_eq!(json("1e401"), None);
        let decimal = |text: &str| Decimal::parse(text).unwrap();
        let ordered = [
            "-10", "-9.5", "-0.1", "0", "0.1", "0.11", "9", "10.0", "10.01",
        ];
        for pair in ordered.windows(2) {
            let (less, more) = (decimal(pair[0]), decimal(pair[1]));
            assert_eq!(less.compare(&more), Ordering::Less, "{pair:?}");
            assert_eq!(more.compare(&less), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(decimal("1.0").compare(&decimal("01")), Ordering::Equal);
        assert_eq!(decimal("-0").compare(&decimal("0.00")), Ordering::Equal);
    }
}
