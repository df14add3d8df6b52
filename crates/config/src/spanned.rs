//! A decoded value that remembers where it stood.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, EnumAccess, VariantAccess as _, Visitor};

use crate::source::{SourceId, Span};

/// The name by which the decoder of this crate knows that a place is wanted.
pub(crate) const NAME: &str = "$intertie::Spanned";

/// A decoded value that remembers where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it stood.
    pub span: Span,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple_struct(NAME, 1, SpannedVisitor(PhantomData))
    }
}

struct SpannedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
    type Value = Spanned<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of a flow file")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Spanned<T>, A::Error> {
        let ((source, start, end), content) = access.variant::<(u32, usize, usize)>()?;
        Ok(Spanned {
            value: content.newtype_variant()?,
            span: Span {
                source: SourceId(source),
                start,
                end,
            },
        })
    }
}

impl<T: schemars::JsonSchema> schemars::JsonSchema for Spanned<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}
