//! Field tables: names with values of many types (section 4.2.5.5, with the types that RabbitMQ
//! uses, <https://www.rabbitmq.com/amqp-0-9-1-errata#section_3>).

use crate::error::{Error, TooLong};
use crate::wire::{Reader, put_long, put_short, put_sized};

/// How deep tables and arrays may lie within each other.
const DEPTH_MAX: usize = 16;
/// The most values of a table that is read, those within others included.
const VALUES_MAX: usize = 4096;

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `V`
    Void,
    /// `t`
    Bool(bool),
    /// `b`, `B`, `s`, `u`, `I`, `i` and `l`; written as `l`.
    Integer(i64),
    /// `f` and `d`; written as `d`.
    Float(f64),
    /// `D`: so many digits stand behind the point.
    Decimal(u8, i32),
    /// `S`: usually UTF-8.
    Text(Vec<u8>),
    /// `x`
    Bytes(Vec<u8>),
    /// `T`: seconds since 1970 began.
    Timestamp(u64),
    /// `A`
    Array(Vec<Self>),
    /// `F`
    Table(Table),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

/// Names with values, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(pub Vec<(Vec<u8>, Value)>);

impl Table {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.0.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| value)
    }

    /// Gives a name a value, whatever it had before.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.retain(|(known, _)| known != name.as_bytes());
        self.0.push((name.as_bytes().to_vec(), value.into()));
    }

    /// Reads a table without its length. What it takes in memory is bounded by the bytes and by
    /// 4096 values.
    ///
    /// # Errors
    /// [`Error::Syntax`] when it is none, is too deep, or has too many values.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let mut left = VALUES_MAX;
        read_table(bytes, DEPTH_MAX, &mut left)
    }

    /// Writes the table with its length.
    ///
    /// # Errors
    /// When a name has more than 255 bytes.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        put_sized(out, |out| {
            for (name, value) in &self.0 {
                put_short(out, name)?;
                value.write(out)?;
            }
            Ok(())
        })
    }
}

fn read_table(bytes: &[u8], depth: usize, left: &mut usize) -> Result<Table, Error> {
    let mut reader = Reader(bytes);
    let mut entries = Vec::new();
    while !reader.0.is_empty() {
        let name = reader.short()?.to_vec();
        entries.push((name, read_value(&mut reader, depth, left)?));
    }
    Ok(Table(entries))
}

fn read_value(reader: &mut Reader<'_>, depth: usize, left: &mut usize) -> Result<Value, Error> {
    *left = left.checked_sub(1).ok_or(Error::Syntax)?;
    Ok(match reader.u8()? {
        b'V' => Value::Void,
        b't' => Value::Bool(reader.u8()? != 0),
        b'b' => Value::Integer((reader.u8()? as i8).into()),
        b'B' => Value::Integer(reader.u8()?.into()),
        b's' => Value::Integer((reader.u16()? as i16).into()),
        b'u' => Value::Integer(reader.u16()?.into()),
        b'I' => Value::Integer((reader.u32()? as i32).into()),
        b'i' => Value::Integer(reader.u32()?.into()),
        b'l' => Value::Integer(reader.u64()? as i64),
        b'f' => Value::Float(f32::from_bits(reader.u32()?).into()),
        b'd' => Value::Float(f64::from_bits(reader.u64()?)),
        b'D' => Value::Decimal(reader.u8()?, reader.u32()? as i32),
        b'S' => Value::Text(reader.long()?.to_vec()),
        b'x' => Value::Bytes(reader.long()?.to_vec()),
        b'T' => Value::Timestamp(reader.u64()?),
        b'A' => {
            let depth = depth.checked_sub(1).ok_or(Error::Syntax)?;
            let mut items = Reader(reader.long()?);
            let mut values = Vec::new();
            while !items.0.is_empty() {
                values.push(read_value(&mut items, depth, left)?);
            }
            Value::Array(values)
        }
        b'F' => {
            let depth = depth.checked_sub(1).ok_or(Error::Syntax)?;
            Value::Table(read_table(reader.long()?, depth, left)?)
        }
        _ => return Err(Error::Syntax),
    })
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let number = |out: &mut Vec<u8>, kind: u8, bytes: [u8; 8]| {
            out.push(kind);
            out.extend_from_slice(&bytes);
        };
        match self {
            Self::Void => out.push(b'V'),
            Self::Bool(value) => out.extend_from_slice(&[b't', (*value).into()]),
            Self::Integer(value) => number(out, b'l', value.to_be_bytes()),
            Self::Float(value) => number(out, b'd', value.to_bits().to_be_bytes()),
            Self::Timestamp(value) => number(out, b'T', value.to_be_bytes()),
            Self::Decimal(scale, value) => {
                out.extend_from_slice(&[b'D', *scale]);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Self::Text(text) => {
                out.push(b'S');
                put_long(out, text)?;
            }
            Self::Bytes(bytes) => {
                out.push(b'x');
                put_long(out, bytes)?;
            }
            Self::Array(values) => {
                out.push(b'A');
                put_sized(out, |out| values.iter().try_for_each(|it| it.write(out)))?;
            }
            Self::Table(table) => {
                out.push(b'F');
                table.write(out)?;
            }
        }
        Ok(())
    }
}
