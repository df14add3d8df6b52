//! Trees to config structs.

use std::fmt;

use serde::de::value::{SeqDeserializer, StrDeserializer, StringDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer,
    MapAccess, SeqAccess, VariantAccess, Visitor,
};

use crate::check::check_kind;
use crate::codes;
use crate::node::{Entry, Node, Value};
use crate::report::Report;
use crate::schema::schema_for;
use crate::source::Span;
use crate::spanned;

/// Checks a tree against the type's schema and decodes it. None when the report tells why.
pub fn decode<T: DeserializeOwned + schemars::JsonSchema>(
    node: &Node,
    report: &mut Report,
) -> Option<T> {
    if !check_kind(node, schema_for::<T>, report) {
        return None;
    }
    match T::deserialize(NodeDeserializer(node)) {
        Ok(value) => Some(value),
        Err(error) => {
            let span = error.span.unwrap_or(node.span);
            report.error(codes::BAD_VALUE, span, error.message);
            None
        }
    }
}

/// Why a tree does not decode, and where.
#[derive(Debug)]
struct DecodeError {
    message: String,
    span: Option<Span>,
}

impl DecodeError {
    /// Errors know their place from the innermost value they pass through.
    fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl serde::de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            message: message.to_string(),
            span: None,
        }
    }
}

#[derive(Clone, Copy)]
struct NodeDeserializer<'a>(&'a Node);

impl<'de> Deserializer<'de> for NodeDeserializer<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let result = match &self.0.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(whole) if whole >= 0 => visitor.visit_u64(whole as u64),
                Some(whole) => visitor.visit_i64(whole),
                None => visitor.visit_f64(number.as_f64()),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Sequence(items) => visitor.visit_seq(Items(items.iter())),
            Value::Mapping(entries) => visitor.visit_map(Entries::of(entries)),
        };
        result.map_err(|error| error.at(self.0.span))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    /// Only from a mapping: what a sequence would need is code for each of hundreds of structs.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let result = match &self.0.value {
            Value::Mapping(entries) => visitor.visit_map(Entries::of(entries)),
            _ => Err(DecodeError::custom("expected a mapping")),
        };
        result.map_err(|error| error.at(self.0.span))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match name {
            spanned::NAME => visitor.visit_enum(WithSpan(self.0)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let result = match &self.0.value {
            Value::String(name) => visitor.visit_enum(Variant { name, value: None }),
            Value::Mapping(entries) => match entries.as_slice() {
                [entry] => {
                    let variant = Variant {
                        name: &entry.key,
                        value: Some(&entry.value),
                    };
                    visitor.visit_enum(variant)
                }
                _ => Err(DecodeError::custom("expected a mapping with one key")),
            },
            _ => Err(DecodeError::custom("expected a name")),
        };
        result.map_err(|error| error.at(self.0.span))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple map identifier ignored_any
    }
}

struct Items<'a>(std::slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        self.0
            .next()
            .map(|item| seed.deserialize(NodeDeserializer(item)))
            .transpose()
    }
}

struct Entries<'a> {
    entries: std::slice::Iter<'a, Entry>,
    value: Option<&'a Node>,
}

impl<'a> Entries<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        Self {
            entries: entries.iter(),
            value: None,
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        let Some(entry) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(&entry.value);
        let key: StrDeserializer<'_, DecodeError> = entry.key.as_str().into_deserializer();
        seed.deserialize(key)
            .map(Some)
            .map_err(|error| error.at(entry.key_span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        match self.value.take() {
            Some(value) => seed.deserialize(NodeDeserializer(value)),
            None => Err(DecodeError::custom("a value was asked for before its key")),
        }
    }
}

/// A [`crate::Spanned`]: the name of the variant is the place, its content the value.
struct WithSpan<'a>(&'a Node);

impl<'de, 'a> EnumAccess<'de> for WithSpan<'a> {
    type Error = DecodeError;
    type Variant = VariantValue<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, VariantValue<'a>), DecodeError> {
        let Span { source, start, end } = self.0.span;
        let parts = [u64::from(source.0), start as u64, end as u64];
        let place = seed.deserialize(SeqDeserializer::new(parts.into_iter()))?;
        Ok((place, VariantValue(Some(self.0))))
    }
}

struct Variant<'a> {
    name: &'a str,
    value: Option<&'a Node>,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = DecodeError;
    type Variant = VariantValue<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, VariantValue<'a>), DecodeError> {
        let name: StringDeserializer<DecodeError> = self.name.to_owned().into_deserializer();
        Ok((seed.deserialize(name)?, VariantValue(self.value)))
    }
}

struct VariantValue<'a>(Option<&'a Node>);

impl VariantValue<'_> {
    fn node(&self) -> Result<NodeDeserializer<'_>, DecodeError> {
        let missing = || DecodeError::custom("the value of this name is missing");
        self.0.map(NodeDeserializer).ok_or_else(missing)
    }
}

impl<'de> VariantAccess<'de> for VariantValue<'_> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match self.0 {
            None => Ok(()),
            Some(node) => Err(DecodeError::custom("this name takes no value").at(node.span)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, DecodeError> {
        seed.deserialize(self.node()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.node()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.node()?.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests;
