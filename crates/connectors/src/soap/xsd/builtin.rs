//! The types that the standard brings along (XML Schema Part 2, section 3).

use crate::soap::xsd::lexical;

/// A type of the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `string`: white space as it is.
    Text,
    /// `normalizedString`: white space is spaces.
    Line,
    /// `token` and what is made of it, `anyURI`: no white space around, one space within.
    Token(Token),
    /// `boolean`.
    Boolean,
    /// `decimal`.
    Decimal,
    /// `integer` and what is made of it: the least and the greatest.
    Integer(Option<i128>, Option<i128>),
    /// `float` and `double`.
    Float,
    /// Dates, times and durations.
    Time(Time),
    /// `hexBinary`.
    Hex,
    /// `base64Binary`.
    Base64,
    /// `QName` and `NOTATION`.
    Name,
    /// `anySimpleType`, and `anyAtomicType`.
    Any,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Anything.
    Any,
    /// `language`.
    Language,
    /// `NMTOKEN`.
    Nmtoken,
    /// `Name`.
    Name,
    /// `NCName`, `ID`, `IDREF`, `ENTITY`.
    Plain,
}

/// What a point or length of time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// `dateTime`.
    DateTime,
    /// `dateTimeStamp`: one with a time zone.
    Stamp,
    /// `date`.
    Date,
    /// `time`.
    Time,
    /// `gYearMonth`.
    YearMonth,
    /// `gYear`.
    Year,
    /// `gMonthDay`.
    MonthDay,
    /// `gMonth`.
    Month,
    /// `gDay`.
    Day,
    /// `duration` and what is made of it.
    Duration,
}

/// What becomes of white space (XML Schema Part 2, section 4.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhiteSpace {
    /// It stays.
    Preserve,
    /// Each becomes a space.
    Replace,
    /// Then those around go, and several become one.
    Collapse,
}

impl Builtin {
    /// The type of this name; `None` when there is none that holds one text.
    pub fn of_name(name: &str) -> Option<Self> {
        use Builtin::{Integer, Token as Tok};
        const fn bits(bits: u32) -> (Option<i128>, Option<i128>) {
            let half = 1_i128 << (bits - 1);
            (Some(-half), Some(half - 1))
        }
        const fn unsigned(bits: u32) -> (Option<i128>, Option<i128>) {
            (Some(0), Some((1_i128 << bits) - 1))
        }
        let integer = |(min, max)| Integer(min, max);
        Some(match name {
            "string" => Self::Text,
            "normalizedString" => Self::Line,
            "token" | "anyURI" => Tok(Token::Any),
            "language" => Tok(Token::Language),
            "NMTOKEN" => Tok(Token::Nmtoken),
            "Name" => Tok(Token::Name),
            "NCName" | "ID" | "IDREF" | "ENTITY" => Tok(Token::Plain),
            "boolean" => Self::Boolean,
            "decimal" => Self::Decimal,
            "integer" => Integer(None, None),
            "nonPositiveInteger" => Integer(None, Some(0)),
            "negativeInteger" => Integer(None, Some(-1)),
            "nonNegativeInteger" => Integer(Some(0), None),
            "positiveInteger" => Integer(Some(1), None),
            "long" => integer(bits(64)),
            "int" => integer(bits(32)),
            "short" => integer(bits(16)),
            "byte" => integer(bits(8)),
            "unsignedLong" => integer(unsigned(64)),
            "unsignedInt" => integer(unsigned(32)),
            "unsignedShort" => integer(unsigned(16)),
            "unsignedByte" => integer(unsigned(8)),
            "float" | "double" => Self::Float,
            "hexBinary" => Self::Hex,
            "base64Binary" => Self::Base64,
            "QName" | "NOTATION" => Self::Name,
            "anySimpleType" | "anyAtomicType" => Self::Any,
            other => Self::Time(Time::of_name(other)?),
        })
    }

    /// What becomes of white space.
    pub fn white_space(self) -> WhiteSpace {
        match self {
            Self::Text | Self::Any => WhiteSpace::Preserve,
            Self::Line => WhiteSpace::Replace,
            _ => WhiteSpace::Collapse,
        }
    }

    /// Whether a text is one of it, its white space treated already.
    pub fn fits(self, text: &str) -> bool {
        match self {
            Self::Text | Self::Line | Self::Any => true,
            Self::Token(token) => lexical::is_token(token, text),
            Self::Boolean => matches!(text, "true" | "false" | "1" | "0"),
            Self::Decimal => lexical::Decimal::parse(text).is_some(),
            Self::Integer(min, max) => lexical::is_integer(text, min, max),
            Self::Float => lexical::is_float(text),
            Self::Time(time) => lexical::is_time(time, text),
            Self::Hex => lexical::is_hex(text),
            Self::Base64 => lexical::is_base64(text),
            Self::Name => lexical::is_name(text),
        }
    }

    /// What people call it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Text | Self::Line | Self::Any => "a text",
            Self::Token(Token::Any) => "a text",
            Self::Token(Token::Language) => "a language tag such as `en-GB`",
            Self::Token(_) => "a name of XML",
            Self::Boolean => "a boolean",
            Self::Decimal => "a decimal number",
            Self::Integer(None, None) => "an integer",
            Self::Integer(..) => "an integer within its range",
            Self::Float => "a number",
            Self::Time(time) => time.words(),
            Self::Hex => "hexadecimal digits",
            Self::Base64 => "base64",
            Self::Name => "a qualified name, written `{namespace}name`",
        }
    }
}

impl Time {
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "dateTime" => Self::DateTime,
            "dateTimeStamp" => Self::Stamp,
            "date" => Self::Date,
            "time" => Self::Time,
            "gYearMonth" => Self::YearMonth,
            "gYear" => Self::Year,
            "gMonthDay" => Self::MonthDay,
            "gMonth" => Self::Month,
            "gDay" => Self::Day,
            "duration" | "dayTimeDuration" | "yearMonthDuration" => Self::Duration,
            _ => return None,
        })
    }

    fn words(self) -> &'static str {
        match self {
            Self::DateTime => "a date and time such as `2026-01-31T23:59:00Z`",
            Self::Stamp => "a date and time with a time zone such as `2026-01-31T23:59:00Z`",
            Self::Date => "a date such as `2026-01-31`",
            Self::Time => "a time such as `23:59:00`",
            Self::YearMonth => "a month such as `2026-01`",
            Self::Year => "a year such as `2026`",
            Self::MonthDay => "a day of the year such as `--01-31`",
            Self::Month => "a month such as `--01`",
            Self::Day => "a day such as `---31`",
            Self::Duration => "a duration such as `P1DT2H`",
        }
    }
}
