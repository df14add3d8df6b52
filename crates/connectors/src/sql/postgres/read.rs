//! Values of PostgreSQL's binary form (`src/backend/utils/adt`, the `_send` functions) as JSON:
//! nothing is rounded, and a type without a clear form is refused by name.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use expr::Value;
use expr::value;
use tokio_postgres::types::{Field, Kind, Type};

use super::time;
use crate::sql::Decimals;
use crate::sql::text::{base64, float};

/// How deep JSON in a column may be.
const DEPTH_MAX: usize = 128;

/// How deep arrays and rows may be within each other.
const NESTED_MAX: u8 = 16;

/// Why a value has no form as JSON.
pub(super) type Why = String;

/// Reads values of one connection.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub decimals: Decimals,
}

/// What is left of a value.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Why> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("it is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Why> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| "it is cut off".to_owned())
    }

    fn i16(&mut self) -> Result<i16, Why> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32, Why> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, Why> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A part with its length before it; `None` for null.
    fn part(&mut self) -> Result<Option<&'a [u8]>, Why> {
        match usize::try_from(self.i32()?) {
            Ok(length) => Ok(Some(self.take(length)?)),
            Err(_) => Ok(None),
        }
    }
}

impl Reader {
    /// The value of a column.
    pub fn value(self, kind: &Type, raw: Option<&[u8]>) -> Result<Value, Why> {
        self.nested(kind, raw, 0)
    }

    fn nested(self, kind: &Type, raw: Option<&[u8]>, depth: u8) -> Result<Value, Why> {
        let Some(raw) = raw else {
            return Ok(Value::Null);
        };
        if depth > NESTED_MAX {
            return Err("it is nested too deep".to_owned());
        }
        match kind.kind() {
            Kind::Simple => self.simple(kind, raw),
            Kind::Enum(_) => text(raw),
            Kind::Domain(of) => self.nested(of, Some(raw), depth + 1),
            Kind::Array(of) => self.array(of, raw, depth + 1),
            Kind::Range(of) => self.range(of, raw, depth + 1),
            Kind::Composite(fields) => self.composite(fields, raw, depth + 1),
            _ => Err(unknown(kind)),
        }
    }

    fn simple(self, kind: &Type, raw: &[u8]) -> Result<Value, Why> {
        let mut rest = Rest(raw);
        Ok(match *kind {
            Type::BOOL => Value::Bool(raw != [0]),
            Type::INT2 => value::integer(rest.i16()?.into()),
            Type::INT4 => value::integer(rest.i32()?.into()),
            Type::INT8 => value::integer(rest.i64()?),
            Type::OID | Type::XID | Type::CID => {
                value::integer(u32::from_be_bytes(rest.array()?).into())
            }
            Type::FLOAT4 => float(f32::from_be_bytes(rest.array()?)),
            Type::FLOAT8 => float(f64::from_be_bytes(rest.array()?)),
            Type::NUMERIC => self.decimal(numeric(raw)?),
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::XML => {
                text(raw)?
            }
            Type::CHAR => text(raw.strip_suffix(&[0]).unwrap_or(raw))?,
            Type::BYTEA => value::text(base64(raw)),
            Type::UUID => value::text(uuid(rest.array()?)),
            Type::JSON => json(raw)?,
            Type::JSONB => json(raw.strip_prefix(&[1]).ok_or("its version is unknown")?)?,
            Type::JSONPATH => text(raw.strip_prefix(&[1]).ok_or("its version is unknown")?)?,
            Type::DATE => value::text(time::date(rest.i32()?)),
            Type::TIME => value::text(time::time(rest.i64()?)),
            Type::TIMETZ => value::text(time::time(rest.i64()?) + &time::zone(rest.i32()?)),
            Type::TIMESTAMP => value::text(time::timestamp(rest.i64()?, false)),
            Type::TIMESTAMPTZ => value::text(time::timestamp(rest.i64()?, true)),
            Type::INTERVAL => {
                let (micros, days, months) = (rest.i64()?, rest.i32()?, rest.i32()?);
                value::text(time::interval(micros, days, months))
            }
            Type::INET | Type::CIDR => value::text(network(raw)?),
            Type::MACADDR | Type::MACADDR8 => {
                let parts: Vec<String> = raw.iter().map(|it| format!("{it:02x}")).collect();
                value::text(parts.join(":"))
            }
            Type::BIT | Type::VARBIT => value::text(bits(raw)?),
            Type::VOID => Value::Null,
            _ if kind.name() == "citext" => text(raw)?,
            _ => return Err(unknown(kind)),
        })
    }

    fn decimal(self, text: String) -> Value {
        let is_number = text.ends_with(|it: char| it.is_ascii_digit());
        match self.decimals {
            Decimals::Number if is_number => value::number(&text),
            Decimals::Number | Decimals::Text => value::text(text),
        }
    }

    fn array(self, of: &Type, raw: &[u8], depth: u8) -> Result<Value, Why> {
        let mut rest = Rest(raw);
        let dimensions = rest.i32()?;
        rest.take(8)?;
        let mut lengths = Vec::new();
        for _ in 0..dimensions.clamp(0, NESTED_MAX.into()) {
            lengths.push(rest.i32()?);
            rest.take(4)?;
        }
        match lengths.is_empty() {
            true => Ok(value::array([])),
            false => self.dimension(of, &lengths, &mut rest, depth),
        }
    }

    fn dimension(
        self,
        of: &Type,
        lengths: &[i32],
        rest: &mut Rest<'_>,
        depth: u8,
    ) -> Result<Value, Why> {
        let Some((length, inner)) = lengths.split_first() else {
            let part = rest.part()?;
            return self.nested(of, part, depth);
        };
        let items = (0..*length).map(|_| self.dimension(of, inner, rest, depth));
        Ok(value::array(items.collect::<Result<Vec<Value>, Why>>()?))
    }

    fn composite(self, fields: &[Field], raw: &[u8], depth: u8) -> Result<Value, Why> {
        let mut rest = Rest(raw);
        if usize::try_from(rest.i32()?) != Ok(fields.len()) {
            return Err("it has other fields than its type".to_owned());
        }
        let mut members = Vec::with_capacity(fields.len());
        for field in fields {
            rest.take(4)?;
            let part = rest.part()?;
            let member = self.nested(field.type_(), part, depth)?;
            members.push((field.name().to_owned(), member));
        }
        Ok(value::object(members))
    }

    /// A range as the server writes it as text.
    fn range(self, of: &Type, raw: &[u8], depth: u8) -> Result<Value, Why> {
        let mut rest = Rest(raw);
        let [flags] = rest.array()?;
        if flags & 1 != 0 {
            return Ok(value::text("empty"));
        }
        let exact = Self {
            decimals: Decimals::Text,
        };
        let mut bound = |is_infinite: bool| -> Result<String, Why> {
            if is_infinite {
                return Ok(String::new());
            }
            let part = rest.part()?;
            let found = exact.nested(of, part, depth)?;
            let found = value::scalar_text(&found).ok_or("its bounds are no texts")?;
            let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '+');
            match found.chars().all(is_plain) && !found.is_empty() {
                true => Ok(found.into_owned()),
                false => Ok(format!(
                    "\"{}\"",
                    found.replace('\\', "\\\\").replace('"', "\\\"")
                )),
            }
        };
        let (lower, upper) = (bound(flags & 8 != 0)?, bound(flags & 16 != 0)?);
        let open = if flags & 2 != 0 { '[' } else { '(' };
        let close = if flags & 4 != 0 { ']' } else { ')' };
        Ok(value::text(format!("{open}{lower},{upper}{close}")))
    }
}

fn unknown(kind: &Type) -> Why {
    format!(
        "the type {} has no form as JSON: cast it, such as `::text`",
        kind.name()
    )
}

fn text(raw: &[u8]) -> Result<Value, Why> {
    match std::str::from_utf8(raw) {
        Ok(text) => Ok(value::text(text)),
        Err(_) => Err("it is no UTF-8".to_owned()),
    }
}

fn json(raw: &[u8]) -> Result<Value, Why> {
    let bytes = Bytes::copy_from_slice(raw);
    expr::json::parse(&bytes, DEPTH_MAX).map_err(|error| error.to_string())
}

/// A `numeric`: groups of four digits, with all digits that the server keeps.
fn numeric(raw: &[u8]) -> Result<String, Why> {
    let mut rest = Rest(raw);
    let (count, weight) = (rest.i16()?, i32::from(rest.i16()?));
    let (sign, scale) = (rest.i16()? as u16, rest.i16()?.max(0) as usize);
    match sign {
        0xC000 => return Ok("NaN".to_owned()),
        0xD000 => return Ok("Infinity".to_owned()),
        0xF000 => return Ok("-Infinity".to_owned()),
        _ => {}
    }
    let mut groups = Vec::new();
    for _ in 0..count.max(0) {
        groups.push(rest.i16()?);
    }
    let group = |at: i32| {
        let at = usize::try_from(at).ok();
        at.and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    let mut text = String::new();
    for at in 0..=weight {
        // Writing to a string does not fail.
        let _ = match text.is_empty() {
            true if group(at) == 0 => Ok(()),
            true => write!(text, "{}", group(at)),
            false => write!(text, "{:04}", group(at)),
        };
    }
    if text.is_empty() {
        text.push('0');
    }
    if scale > 0 {
        text.push('.');
        let end = text.len() + scale;
        for at in (weight + 1).. {
            if text.len() >= end {
                break;
            }
            let _ = write!(text, "{:04}", group(at));
        }
        text.truncate(end);
    }
    if sign == 0x4000 {
        text.insert(0, '-');
    }
    Ok(text)
}

fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn network(raw: &[u8]) -> Result<String, Why> {
    let mut rest = Rest(raw);
    let [family, mask, is_cidr, _length] = rest.array()?;
    let (address, full) = match family {
        2 => (Ipv4Addr::from(rest.array::<4>()?).to_string(), 32),
        _ => (Ipv6Addr::from(rest.array::<16>()?).to_string(), 128),
    };
    Ok(match is_cidr == 0 && mask == full {
        true => address,
        false => format!("{address}/{mask}"),
    })
}

fn bits(raw: &[u8]) -> Result<String, Why> {
    let mut rest = Rest(raw);
    let count = usize::try_from(rest.i32()?).unwrap_or(0);
    let bytes = rest.take(count.div_ceil(8))?;
    let bit = |at: usize| {
        bytes
            .get(at / 8)
            .is_some_and(|it| it >> (7 - at % 8) & 1 == 1)
    };
    Ok((0..count)
        .map(|at| if bit(at) { '1' } else { '0' })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw_numeric(weight: i16, sign: u16, scale: i16, groups: &[i16]) -> Vec<u8> {
        let mut raw = (groups.len() as i16).to_be_bytes().to_vec();
        raw.extend(weight.to_be_bytes());
        raw.extend(sign.to_be_bytes());
        raw.extend(scale.to_be_bytes());
        groups.iter().for_each(|it| raw.extend(it.to_be_bytes()));
        raw
    }

    #[test]
    fn numerics_keep_every_digit() {
        let read = |weight, sign, scale, groups: &[i16]| {
            numeric(&raw_numeric(weight, sign, scale, groups)).unwrap()
        };
        assert_eq!(read(0, 0, 0, &[]), "0");
        assert_eq!(read(0, 0, 2, &[]), "0.00");
        assert_eq!(read(1, 0x4000, 3, &[12, 3456, 7000]), "-123456.700");
        assert_eq!(read(-1, 0, 5, &[12, 3000]), "0.00123");
        assert_eq!(read(-2, 0, 8, &[12]), "0.00000012");
        assert_eq!(read(2, 0, 0, &[1]), "100000000");
        assert_eq!(read(0, 0xC000, 0, &[]), "NaN");
        assert!(numeric(&[0, 9, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let reader = Reader {
            decimals: Decimals::Number,
        };
        for kind in [
            Type::INT8,
            Type::INT4_ARRAY,
            Type::INT4_RANGE,
            Type::INET,
            Type::BIT,
        ] {
            assert!(reader.value(&kind, Some(&[0, 0])).is_err(), "{kind}");
        }
        assert!(reader.value(&Type::TEXT, Some(&[0xff])).is_err());
        let why = reader.value(&Type::POINT, Some(&[0; 16])).unwrap_err();
        assert!(why.contains("point"), "{why}");
    }
}
