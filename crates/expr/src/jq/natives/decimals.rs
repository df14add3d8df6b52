//! Exact decimals: numbers and texts of at most 28 digits.

use jaq_core::native::{bome, unary, v};
use rust_decimal::{Decimal, RoundingStrategy};

use super::{Cv, Filter};
use crate::jq::counted::{Counted, Error, Result};
use crate::jq::meter;
use crate::value;

pub(super) fn all() -> Vec<Filter> {
    vec![
        ("dec_add", v(2), |cv| bome(binary(cv, Decimal::checked_add))),
        ("dec_sub", v(2), |cv| bome(binary(cv, Decimal::checked_sub))),
        ("dec_mul", v(2), |cv| bome(binary(cv, Decimal::checked_mul))),
        ("dec_div", v(3), |mut cv| {
            let digits = cv.0.pop_var();
            bome(divided(cv, &digits))
        }),
        ("dec_cmp", v(2), |cv| bome(compared(cv))),
        ("dec_round", v(1), |cv| {
            unary(cv, |value, digits| {
                shown(rounded(decimal(&value)?, &digits)?)
            })
        }),
    ]
}

fn decimal(value: &Counted) -> Result<Decimal> {
    meter::steps(1)?;
    let text = value::scalar_text(&value.value).unwrap_or_default();
    let parsed = match text.contains(['e', 'E']) {
        true => Decimal::from_scientific(&text),
        false => Decimal::from_str_exact(text.trim_start_matches('+')),
    };
    parsed.map_err(|_| {
        Error::str(format_args!(
            "{value} is no decimal number of at most 28 digits"
        ))
    })
}

fn shown(decimal: Decimal) -> Result {
    Ok(Counted::scalar(value::number(&decimal.to_string())))
}

fn arguments(mut cv: Cv<'_>) -> Result<(Decimal, Decimal)> {
    let right = cv.0.pop_var();
    let left = cv.0.pop_var();
    Ok((decimal(&left)?, decimal(&right)?))
}

fn too_large() -> Error {
    Error::str("the result has more than 28 digits")
}

fn binary(cv: Cv<'_>, operation: impl Fn(Decimal, Decimal) -> Option<Decimal>) -> Result {
    let (left, right) = arguments(cv)?;
    shown(operation(left, right).ok_or_else(too_large)?)
}

fn divided(cv: Cv<'_>, digits: &Counted) -> Result {
    let (left, right) = arguments(cv)?;
    if right.is_zero() {
        return Err(Error::str("a division by zero"));
    }
    let quotient = left.checked_div(right).ok_or_else(too_large)?;
    shown(rounded(quotient, digits)?)
}

/// Half is rounded away from zero, as in trade. The result has that many digits, zeros included.
fn rounded(value: Decimal, digits: &Counted) -> Result<Decimal> {
    let Some(digits) = jaq_std::ValT::as_isize(digits).and_then(|it| u32::try_from(it).ok()) else {
        return Err(digits.clone().typ("number of digits"));
    };
    let digits = digits.min(28);
    let mut rounded = value.round_dp_with_strategy(digits, RoundingStrategy::MidpointAwayFromZero);
    rounded.rescale(digits);
    Ok(rounded)
}

fn compared(cv: Cv<'_>) -> Result {
    let (left, right) = arguments(cv)?;
    Ok(Counted::from(left.cmp(&right) as isize))
}
