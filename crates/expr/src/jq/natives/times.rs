//! Instants and time zones.

use jaq_core::native::{bome, unary, v};
use jaq_std::ValT as _;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

use super::{Cv, Filter};
use crate::jq::counted::{Counted, Error, Result};
use crate::jq::meter;
use crate::value::Value;

pub(super) fn all() -> Vec<Filter> {
    vec![
        ("time_add", v(2), |cv| bome(time_add(cv))),
        ("in_zone", v(2), |cv| bome(in_zone(cv))),
        ("parse_time", v(0), |cv| bome(parse_time(&cv.1))),
        ("format_time", v(2), |mut cv| {
            let zone = cv.0.pop_var();
            bome(unary_format(cv, &zone))
        }),
        ("iso_time", v(0), |cv| {
            bome(instant(&cv.1).map(|it| Counted::from(it.to_string())))
        }),
        ("time_diff", v(1), |cv| {
            unary(cv, |end, start| {
                let microseconds =
                    instant(&end)?.as_microsecond() - instant(&start)?.as_microsecond();
                Ok(seconds(microseconds))
            })
        }),
    ]
}

/// RFC 3339 text, or seconds since 1970.
fn instant(value: &Counted) -> Result<Timestamp> {
    meter::steps(1)?;
    match &value.value {
        Value::TStr(_) => {
            let text = value.text()?;
            text.parse::<Timestamp>()
                .map_err(|_| Error::str(format_args!("{value} is no time with a zone (RFC 3339)")))
        }
        Value::Num(_) => {
            let seconds = value.as_f64().unwrap_or(f64::NAN);
            Timestamp::from_microsecond((seconds * 1e6).round() as i64)
                .ok()
                .filter(|_| seconds.is_finite())
                .ok_or_else(|| Error::str(format_args!("{value} is no time")))
        }
        _ => Err(value.clone().typ("time")),
    }
}

fn seconds(microseconds: i64) -> Counted {
    match microseconds % 1_000_000 {
        0 => Counted::from((microseconds / 1_000_000) as isize),
        _ => Counted::from(microseconds as f64 / 1e6),
    }
}

/// Seconds since 1970 of RFC 3339 text, fractions included.
fn parse_time(value: &Counted) -> Result {
    Ok(seconds(instant(value)?.as_microsecond()))
}

fn time_add(mut cv: Cv<'_>) -> Result {
    let duration = cv.0.pop_var();
    let time = cv.0.pop_var();
    let span: Span = duration.text()?.parse().map_err(|_| {
        Error::str(format_args!(
            "{duration} is no duration (ISO 8601, such as PT5M)"
        ))
    })?;
    let is_text = matches!(time.value, Value::TStr(_));
    // Days and months have the length that they have in UTC.
    let zoned = instant(&time)?.to_zoned(TimeZone::UTC);
    let later = zoned.checked_add(span).map_err(Error::str)?.timestamp();
    Ok(match is_text {
        true => Counted::from(later.to_string()),
        false => seconds(later.as_microsecond()),
    })
}

fn zoned(time: &Counted, zone: &Counted) -> Result<Zoned> {
    let zone_found = TimeZone::get(zone.text()?)
        .map_err(|_| Error::str(format_args!("{zone} is no time zone")))?;
    Ok(instant(time)?.to_zoned(zone_found))
}

/// RFC 3339 text with the offset of a zone.
fn in_zone(mut cv: Cv<'_>) -> Result {
    let zone = cv.0.pop_var();
    let time = cv.0.pop_var();
    let zoned = zoned(&time, &zone)?;
    let text = strtime::format("%Y-%m-%dT%H:%M:%S%.f%:z", &zoned).map_err(Error::str)?;
    Ok(Counted::from(text))
}

fn unary_format(mut cv: Cv<'_>, zone: &Counted) -> Result {
    let format = cv.0.pop_var();
    let zoned = zoned(&cv.1, zone)?;
    let text = strtime::format(format.text()?, &zoned).map_err(Error::str)?;
    Ok(Counted::from(text))
}
