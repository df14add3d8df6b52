//! Values of SQL Server as JSON (MS-TDS, sections 2.2.5.4 and 2.2.5.5).

use std::fmt::Write as _;

use expr::value::{self, Value};
use tiberius::numeric::Numeric;
use tiberius::time::{Date, DateTime2, DateTimeOffset};
use tiberius::{Column, ColumnData, ColumnType};

use crate::sql::Decimals;
use crate::sql::error::SqlError;
use crate::sql::text::base64;

/// The days from 0001-01-01 to 1900-01-01 and to 1970-01-01.
const DAYS_TO_1900: i64 = 693_595;
const DAYS_TO_1970: i64 = 719_162;
/// The parts of a second that `datetime` counts.
const DATETIME_PARTS: u64 = 300;
/// Whole numbers up to here are exact in the client's form of `money`.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// About how many bytes a value took on its way.
pub fn size(data: &ColumnData<'static>) -> usize {
    match data {
        ColumnData::String(Some(text)) => 2 * text.len(),
        ColumnData::Binary(Some(bytes)) => bytes.len(),
        ColumnData::Xml(Some(xml)) => 2 * xml.as_ref().as_ref().len(),
        _ => 8,
    }
}

/// A value of a column as JSON; null when it has none.
///
/// # Errors
/// When it is a number that JSON does not have, or not exact any more.
pub fn read(
    data: ColumnData<'static>,
    column: &Column,
    decimals: Decimals,
) -> Result<Value, SqlError> {
    Ok(present(data, column, decimals)?.unwrap_or(Value::Null))
}

fn present(
    data: ColumnData<'static>,
    column: &Column,
    decimals: Decimals,
) -> Result<Option<Value>, SqlError> {
    let exact = |text: String| match decimals {
        Decimals::Number => value::number(&text),
        Decimals::Text => value::text(text),
    };
    let is_money = matches!(column.column_type(), ColumnType::Money | ColumnType::Money4);
    Ok(match data {
        ColumnData::U8(it) => it.map(|it| value::integer(it.into())),
        ColumnData::I16(it) => it.map(|it| value::integer(it.into())),
        ColumnData::I32(it) => it.map(|it| value::integer(it.into())),
        ColumnData::I64(it) => it.map(value::integer),
        // The shortest text of the single precision number: 0.1, not 0.10000000149.
        ColumnData::F32(it) => it.map(|it| value::number(&it.to_string())),
        ColumnData::F64(Some(it)) if is_money => Some(exact(money(it, column)?)),
        ColumnData::F64(it) => it.map(value::float),
        ColumnData::Bit(it) => it.map(Value::Bool),
        ColumnData::String(it) => it.map(|it| value::text(it.into_owned())),
        ColumnData::Guid(it) => it.map(|it| value::text(it.to_string())),
        ColumnData::Binary(it) => it.map(|it| value::text(base64(&it))),
        ColumnData::Numeric(it) => it.map(|it| exact(numeric(it))),
        ColumnData::Xml(it) => it.map(|it| value::text(it.into_owned().into_string())),
        ColumnData::DateTime(it) => it.map(|it| {
            let days = DAYS_TO_1900 + i64::from(it.days());
            // It is shown, and meant, rounded to milliseconds: .000, .003 or .007.
            let parts = u64::from(it.seconds_fragments());
            let millis = (parts * 1000 + DATETIME_PARTS / 2) / DATETIME_PARTS;
            value::text(moment(days, millis, 3))
        }),
        ColumnData::SmallDateTime(it) => it.map(|it| {
            let days = DAYS_TO_1900 + i64::from(it.days());
            let minutes = u64::from(it.seconds_fragments());
            value::text(moment(days, minutes * 60, 0))
        }),
        ColumnData::Time(it) => it.map(|it| value::text(clock(it.increments(), it.scale()))),
        ColumnData::Date(it) => it.map(|it| value::text(date(it))),
        ColumnData::DateTime2(it) => it.map(|it| value::text(datetime2(it))),
        ColumnData::DateTimeOffset(it) => it.map(|it| value::text(offset(it))),
    })
}

fn odd(column: &Column, why: &str) -> SqlError {
    let name = column.name().escape_debug();
    SqlError::unsupported(format_args!("the column `{name}` {why}"))
}

/// `money` has four digits behind the point. The client makes a floating point number of it, from
/// which they come back as long as there are no more than 15 digits.
fn money(number: f64, column: &Column) -> Result<String, SqlError> {
    if (number * 10_000.0).abs() >= EXACT_MAX {
        let why =
            "holds an amount of money too large to be read exactly: cast it to `decimal(19,4)`";
        return Err(odd(column, why));
    }
    Ok(format!("{number:.4}"))
}

/// All digits, as many behind the point as the type has.
fn numeric(number: Numeric) -> String {
    let scale = usize::from(number.scale());
    let digits = format!(
        "{:0>width$}",
        number.value().unsigned_abs(),
        width = scale + 1
    );
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(scale));
    let sign = if number.value() < 0 { "-" } else { "" };
    match fraction.is_empty() {
        true => format!("{sign}{whole}"),
        false => format!("{sign}{whole}.{fraction}"),
    }
}

fn date(it: Date) -> String {
    day(i64::from(it.days()))
}

fn datetime2(it: DateTime2) -> String {
    moment(
        i64::from(it.date().days()),
        it.time().increments(),
        it.time().scale(),
    )
}

/// The server counts in UTC and says beside it how far the clock is from it, in minutes.
fn offset(it: DateTimeOffset) -> String {
    let (clock, minutes) = (it.datetime2().time(), i64::from(it.offset()));
    let per_second = 10_u64.saturating_pow(clock.scale().into());
    let per_day = (86_400 * per_second) as i64;
    let local = clock.increments() as i64 + minutes * 60 * per_second as i64;
    let days = i64::from(it.datetime2().date().days()) + local.div_euclid(per_day);
    let mut text = moment(days, local.rem_euclid(per_day) as u64, clock.scale());
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.unsigned_abs();
    match minutes {
        0 => text.push('Z'),
        _ => {
            let _ = write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        }
    }
    text
}

fn moment(days: i64, increments: u64, scale: u8) -> String {
    // `datetime` may be rounded up to the next day.
    let per_day = 86_400 * 10_u64.saturating_pow(scale.into());
    let (more, increments) = (increments / per_day, increments % per_day);
    let days = days + more as i64;
    format!("{}T{}", day(days), clock(increments, scale))
}

/// The time of day, counted in parts of a second of which there are ten to the power of `scale`.
/// Zeros at the end of the fraction are left out.
fn clock(increments: u64, scale: u8) -> String {
    let per_second = 10_u64.saturating_pow(scale.into());
    let (seconds, fraction) = (increments / per_second, increments % per_second);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    if fraction > 0 {
        let digits = format!("{fraction:0width$}", width = usize::from(scale));
        let _ = write!(text, ".{}", digits.trim_end_matches('0'));
    }
    text
}

/// The date of a day, counted from 0001-01-01 in the Gregorian calendar without end.
fn day(days: i64) -> String {
    // Years that begin in March, of eras of 400 years: the leap day is the last of its year.
    let days = days - DAYS_TO_1970 + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiberius::time::{DateTime, SmallDateTime, Time};

    fn shown(data: ColumnData<'static>, kind: ColumnType) -> String {
        let column = Column::new("c".to_owned(), kind);
        match read(data, &column, Decimals::Number) {
            Ok(value) => value::shown(&value),
            Err(error) => error.message,
        }
    }

    #[test]
    fn days_have_their_dates() {
        let cases = [
            (0, "0001-01-01"),
            (DAYS_TO_1900, "1900-01-01"),
            (DAYS_TO_1970, "1970-01-01"),
            (DAYS_TO_1970 + 11_016, "2000-02-29"),
            (DAYS_TO_1970 + 20_484, "2026-01-31"),
            (3_652_058, "9999-12-31"),
        ];
        for (days, expected) in cases {
            assert_eq!(day(days), expected);
        }
    }

    #[test]
    fn values_become_json() {
        use ColumnData as Data;
        let date = Date::new(739_646);
        let time = |increments, scale| Time::new(increments, scale);
        let noon = |scale| time(43_200 * 10_u64.pow(u32::from(scale)), scale);
        let cases = [
            (Data::F32(Some(0.1)), ColumnType::Float4, "0.1"),
            (Data::F64(Some(-922.3372)), ColumnType::Money, "-922.3372"),
            (Data::F64(Some(1.5)), ColumnType::Money4, "1.5000"),
            (Data::F64(Some(1.5)), ColumnType::Float8, "1.5"),
            (
                Data::Numeric(Some(Numeric::new_with_scale(-5, 3))),
                ColumnType::Numericn,
                "-0.005",
            ),
            (
                Data::Numeric(Some(Numeric::new_with_scale(120, 0))),
                ColumnType::Numericn,
                "120",
            ),
            (Data::Date(Some(date)), ColumnType::Daten, "\"2026-01-31\""),
            (
                Data::Time(Some(time(1, 7))),
                ColumnType::Timen,
                "\"00:00:00.0000001\"",
            ),
            (
                Data::DateTime2(Some(DateTime2::new(date, time(432_005, 1)))),
                ColumnType::Datetime2,
                "\"2026-01-31T12:00:00.5\"",
            ),
            (
                Data::DateTimeOffset(Some(DateTimeOffset::new(
                    DateTime2::new(date, noon(7)),
                    765,
                ))),
                ColumnType::DatetimeOffsetn,
                "\"2026-02-01T00:45:00+12:45\"",
            ),
            (
                Data::DateTimeOffset(Some(DateTimeOffset::new(
                    DateTime2::new(date, noon(0)),
                    -750,
                ))),
                ColumnType::DatetimeOffsetn,
                "\"2026-01-30T23:30:00-12:30\"",
            ),
            (
                Data::DateTimeOffset(Some(DateTimeOffset::new(DateTime2::new(date, noon(0)), 0))),
                ColumnType::DatetimeOffsetn,
                "\"2026-01-31T12:00:00Z\"",
            ),
            (
                Data::DateTime(Some(DateTime::new(-53_690, 25_919_999))),
                ColumnType::Datetimen,
                "\"1753-01-01T23:59:59.997\"",
            ),
            (
                Data::SmallDateTime(Some(SmallDateTime::new(46_051, 90))),
                ColumnType::Datetimen,
                "\"2026-01-31T01:30:00\"",
            ),
            (
                Data::Binary(Some(vec![255, 0].into())),
                ColumnType::BigVarBin,
                "\"/wA=\"",
            ),
            (Data::Bit(Some(true)), ColumnType::Bit, "true"),
            (Data::String(None), ColumnType::NVarchar, "null"),
        ];
        for (data, kind, expected) in cases {
            assert_eq!(shown(data, kind), expected);
        }
        let rich = shown(Data::F64(Some(922_337_203_685_477.6)), ColumnType::Money);
        assert!(rich.contains("cast it to `decimal(19,4)`"), "{rich}");
    }
}
