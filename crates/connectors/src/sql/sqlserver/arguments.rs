//! What arguments are bound as.

use std::borrow::Cow;

use expr::value::{self, Value};
use tiberius::numeric::Numeric;
use tiberius::{ColumnData, IntoSql};

use crate::sql::Texts;
use crate::sql::error::SqlError;

/// The most digits of `numeric`.
const DIGITS_MAX: usize = 38;

/// What an argument is bound as.
pub struct Bound(ColumnData<'static>);

impl IntoSql<'static> for Bound {
    fn into_sql(self) -> ColumnData<'static> {
        self.0
    }
}

impl Bound {
    /// Null goes as `nvarchar`, which all types take but `varbinary`; a boolean as `bit`; a whole
    /// number as `bigint`, others as `numeric` with just their digits, with an exponent as
    /// `float`; text as `nvarchar`, bytes as `varbinary`.
    ///
    /// # Errors
    /// For numbers that the server does not have.
    pub fn new(name: &str, argument: &Value) -> Result<Self, SqlError> {
        let data = match argument {
            Value::Null => ColumnData::String(None),
            Value::Bool(it) => ColumnData::Bit(Some(*it)),
            Value::TStr(bytes) => {
                let text = std::str::from_utf8(bytes);
                let text = text.map_err(|_| SqlError::argument(name, "is no UTF-8"))?;
                ColumnData::String(Some(Cow::Owned(text.to_owned())))
            }
            Value::BStr(bytes) => ColumnData::Binary(Some(Cow::Owned(bytes.to_vec()))),
            Value::Num(_) => {
                let text = value::scalar_text(argument).unwrap_or_default();
                number(&text).map_err(|why| SqlError::argument(name, why))?
            }
            Value::Arr(_) | Value::Obj(_) => {
                let kind = value::kind(argument);
                return Err(SqlError::argument(name, format_args!("is {kind}")));
            }
        };
        Ok(Self(data))
    }

    /// How the text of a statement declares it. The server compares a column that is `varchar` with
    /// an `nvarchar` by making all of the column's values `nvarchar`, past its index.
    pub fn sql_type(&self, texts: Texts) -> Cow<'static, str> {
        match &self.0 {
            ColumnData::String(Some(text)) if texts == Texts::Varchar && text.is_ascii() => {
                match text.len() > 8000 {
                    true => "varchar(max)".into(),
                    false => "varchar(8000)".into(),
                }
            }
            ColumnData::Bit(_) => "bit".into(),
            ColumnData::I64(_) => "bigint".into(),
            ColumnData::F64(_) => "float".into(),
            ColumnData::Numeric(Some(number)) => {
                format!("numeric({},{})", number.precision(), number.scale()).into()
            }
            // Characters of UTF-16: never more than bytes of UTF-8.
            ColumnData::String(Some(text)) if text.len() > 4000 => "nvarchar(max)".into(),
            ColumnData::Binary(Some(bytes)) if bytes.len() > 8000 => "varbinary(max)".into(),
            ColumnData::Binary(_) => "varbinary(8000)".into(),
            _ => "nvarchar(4000)".into(),
        }
    }
}

fn number(text: &str) -> Result<ColumnData<'static>, &'static str> {
    if let Ok(number) = text.parse() {
        return Ok(ColumnData::I64(Some(number)));
    }
    let float: f64 = text.parse().map_err(|_| "is no number")?;
    if !float.is_finite() {
        return Err("is no number that the server has");
    }
    if text.contains(['e', 'E']) {
        return Ok(ColumnData::F64(Some(float)));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches(['-', '0']).len();
    let too_long = "has more than 38 digits";
    if significant.max(fraction.len() + 1) > DIGITS_MAX {
        return Err(too_long);
    }
    let scale = u8::try_from(fraction.len()).map_err(|_| too_long)?;
    let value = digits.parse().map_err(|_| too_long)?;
    Ok(ColumnData::Numeric(Some(Numeric::new_with_scale(
        value, scale,
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(argument: Value) -> Result<String, String> {
        let bound = Bound::new("a", &argument).map_err(|error| error.message)?;
        Ok(format!("{} {:?}", bound.sql_type(Texts::Nvarchar), bound.0))
    }

    #[test]
    fn numbers_are_bound_exactly() {
        let is = |text: &str| bound(value::number(text)).unwrap();
        assert_eq!(is("-7"), "bigint I64(Some(-7))");
        assert_eq!(
            is("18446744073709551615"),
            "numeric(20,0) Numeric(Some(18446744073709551615.0))"
        );
        assert_eq!(is("-0.05"), "numeric(3,2) Numeric(Some(-0.05))");
        assert_eq!(is("12.50"), "numeric(4,2) Numeric(Some(12.50))");
        assert_eq!(is("1e300"), "float F64(Some(1e300))");
        let nines = "9".repeat(38);
        assert!(is(&nines).starts_with("numeric(38,0)"));
        let too_long = "the argument `a` has more than 38 digits".to_owned();
        for text in [format!("1{nines}"), format!("0.{nines}")] {
            assert_eq!(bound(value::number(&text)), Err(too_long.clone()), "{text}");
        }
        assert!(bound(value::float(f64::NAN)).is_err());
    }

    #[test]
    fn texts_of_ascii_may_be_varchar() {
        let declared = |text: &str| {
            let bound = Bound::new("a", &value::text(text)).unwrap();
            bound.sql_type(Texts::Varchar).into_owned()
        };
        assert_eq!(declared("plain"), "varchar(8000)");
        assert_eq!(declared(&"a".repeat(8001)), "varchar(max)");
        assert_eq!(declared("größer"), "nvarchar(4000)");
    }

    #[test]
    fn long_values_are_of_types_without_limit() {
        assert!(
            bound(value::text("a".repeat(4000)))
                .unwrap()
                .starts_with("nvarchar(4000)")
        );
        assert!(
            bound(value::text("a".repeat(4001)))
                .unwrap()
                .starts_with("nvarchar(max)")
        );
        let bytes = value::bytes(vec![0; 8001].into());
        assert!(bound(bytes).unwrap().starts_with("varbinary(max)"));
        assert_eq!(bound(Value::Null).unwrap(), "nvarchar(4000) String(None)");
        assert!(bound(value::array([])).is_err());
    }
}
