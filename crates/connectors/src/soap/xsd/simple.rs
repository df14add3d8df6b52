//! Values of simple types: texts in XML, scalars in JSON.

use base64ct::{Base64, Encoding as _};
use expr::value::{self, Value};
use expr::xml::{Element, Writer};

use crate::soap::xsd::builtin::{Builtin, WhiteSpace};
use crate::soap::xsd::lexical::{Decimal, normalized};
use crate::soap::xsd::map_error::MapError;
use crate::soap::xsd::model::{Model, Simple, Type, TypeId};

/// The most types that may be made of each other.
const DEPTH_MAX: usize = 64;

impl Model {
    /// The type of the standard that a type is made of, when it holds one text.
    fn builtin(&self, id: TypeId) -> Option<Builtin> {
        let mut id = id;
        for _ in 0..DEPTH_MAX {
            match self.get(id) {
                Type::Simple(Simple::Builtin(builtin)) => return Some(*builtin),
                Type::Simple(Simple::Restricted(base, _)) => id = *base,
                _ => return None,
            }
        }
        None
    }

    /// What becomes of white space in texts of a type.
    fn white_space(&self, id: TypeId) -> WhiteSpace {
        let mut id = id;
        for _ in 0..DEPTH_MAX {
            match self.get(id) {
                Type::Simple(Simple::Builtin(builtin)) => return builtin.white_space(),
                Type::Simple(Simple::Restricted(base, facets)) => match facets.white_space {
                    Some(space) => return space,
                    None => id = *base,
                },
                Type::Simple(Simple::Union(_)) => return WhiteSpace::Preserve,
                _ => return WhiteSpace::Collapse,
            }
        }
        WhiteSpace::Preserve
    }

    /// Why a text is none of a type; its white space has been treated.
    ///
    /// # Errors
    /// When it is none.
    fn check(&self, id: TypeId, text: &str, depth: usize) -> Result<(), MapError> {
        let Type::Simple(simple) = self.get(id) else {
            return Err(MapError::new("has elements and no text"));
        };
        if depth > DEPTH_MAX {
            return Err(MapError::new("is of a type with too many levels"));
        }
        match simple {
            Simple::Builtin(builtin) => match builtin.fits(text) {
                true => Ok(()),
                false => Err(MapError::new(format!("is {}", builtin.words()))),
            },
            Simple::Restricted(base, facets) => {
                self.check(*base, text, depth + 1)?;
                let builtin = self.builtin(*base);
                let count = self.length(*base, text);
                match facets.refuses(text, builtin, count) {
                    Some(reason) => Err(MapError::new(reason)),
                    None => Ok(()),
                }
            }
            Simple::List(item) => {
                let mut items = text.split(' ').filter(|it| !it.is_empty());
                items.try_for_each(|text| self.check(*item, text, depth + 1))
            }
            Simple::Union(members) => {
                let fits = |id: &TypeId| {
                    let text = normalized(text, self.white_space(*id));
                    self.check(*id, &text, depth + 1).is_ok()
                };
                match members.iter().any(fits) {
                    true => Ok(()),
                    false => Err(MapError::new("is of none of the types that it may have")),
                }
            }
        }
    }

    /// The length of a text as facets mean it (XML Schema Part 2, section 4.3.1).
    fn length(&self, id: TypeId, text: &str) -> usize {
        if self.list_item(id).is_some() {
            return text.split(' ').filter(|it| !it.is_empty()).count();
        }
        let significant = || text.bytes().filter(|it| !matches!(it, b' ' | b'=')).count();
        match self.builtin(id) {
            Some(Builtin::Hex) => text.len() / 2,
            Some(Builtin::Base64) => significant() * 3 / 4,
            _ => text.chars().count(),
        }
    }

    /// The type of the items, when a type is a list.
    pub(super) fn list_item(&self, id: TypeId) -> Option<TypeId> {
        let mut id = id;
        for _ in 0..DEPTH_MAX {
            match self.get(id) {
                Type::Simple(Simple::List(item)) => return Some(*item),
                Type::Simple(Simple::Restricted(base, _)) => id = *base,
                _ => return None,
            }
        }
        None
    }

    /// The text of a value.
    ///
    /// # Errors
    /// When the value is none of the type.
    pub fn text_of(&self, id: TypeId, value: &Value, out: &mut Writer) -> Result<String, MapError> {
        let text = match (self.list_item(id), value) {
            (Some(item), Value::Arr(items)) => {
                let mut texts = Vec::with_capacity(items.len());
                for (at, value) in items.iter().enumerate() {
                    let text = self.scalar(item, value);
                    texts.push(text.map_err(|error| error.within("", Some(at)))?);
                }
                texts.join(" ")
            }
            _ => self.scalar(id, value)?,
        };
        let text = normalized(&text, self.white_space(id)).into_owned();
        self.check(id, &text, 0)?;
        if self.builtin(id) == Some(Builtin::Name)
            && let Some((namespace, local)) =
                text.strip_prefix('{').and_then(|it| it.split_once('}'))
        {
            return Ok(format!("{}:{local}", out.prefix(namespace)));
        }
        Ok(text)
    }

    fn scalar(&self, id: TypeId, value: &Value) -> Result<String, MapError> {
        let builtin = self.builtin(id);
        if let Value::BStr(bytes) = value {
            return match builtin {
                Some(Builtin::Base64) => Ok(Base64::encode_string(bytes)),
                Some(Builtin::Hex) => Ok(bytes.iter().map(|it| format!("{it:02X}")).collect()),
                _ => Err(MapError::new("is a text, not bytes")),
            };
        }
        let Some(text) = value::scalar_text(value) else {
            let words = builtin.map_or("a text", Builtin::words);
            return Err(MapError::new(format!(
                "is {words}, not {}",
                value::kind(value)
            )));
        };
        if !matches!(value, Value::Num(_)) {
            return Ok(text.into_owned());
        }
        Ok(match builtin {
            // JSON has one kind of number: 5.0 and 5e0 are 5.
            Some(Builtin::Integer(..)) => Decimal::parse_json(&text)
                .filter(Decimal::is_whole)
                .map_or_else(|| text.into_owned(), |it| it.whole_text()),
            Some(Builtin::Decimal) => {
                Decimal::parse_json(&text).map_or_else(|| text.into_owned(), |it| it.text())
            }
            Some(Builtin::Float) => match &*text {
                "inf" | "Infinity" => "INF".to_owned(),
                "-inf" | "-Infinity" => "-INF".to_owned(),
                _ => text.into_owned(),
            },
            _ => text.into_owned(),
        })
    }

    /// The value of a text, which stands in this element.
    ///
    /// # Errors
    /// When the text is none of the type.
    pub fn value_of(&self, id: TypeId, text: &str, around: &Element) -> Result<Value, MapError> {
        let text = normalized(text, self.white_space(id));
        if self.builtin(id) == Some(Builtin::Name) {
            return name_value(&text, around);
        }
        self.check(id, &text, 0)?;
        Ok(self.typed(id, &text, 0))
    }

    fn typed(&self, id: TypeId, text: &str, depth: usize) -> Value {
        if let Some(item) = self.list_item(id) {
            let items = text.split(' ').filter(|it| !it.is_empty());
            return value::array(items.map(|text| self.typed(item, text, depth + 1)));
        }
        let Some(builtin) = self.builtin(id) else {
            let member = self.member(id, text).filter(|_| depth < DEPTH_MAX);
            return match member {
                Some(member) => {
                    let text = normalized(text, self.white_space(member));
                    self.typed(member, &text, depth + 1)
                }
                None => value::text(text),
            };
        };
        match builtin {
            Builtin::Boolean => Value::Bool(matches!(text, "true" | "1")),
            Builtin::Decimal | Builtin::Integer(..) => match Decimal::parse(text) {
                Some(number) => value::number(&number.text()),
                None => value::text(text),
            },
            Builtin::Float => float(text),
            _ => value::text(text),
        }
    }

    /// The first member of a union that has a text.
    fn member(&self, id: TypeId, text: &str) -> Option<TypeId> {
        let mut id = id;
        for _ in 0..DEPTH_MAX {
            match self.get(id) {
                Type::Simple(Simple::Restricted(base, _)) => id = *base,
                Type::Simple(Simple::Union(members)) => {
                    let mut members = members.iter().copied();
                    return members.find(|id| {
                        let text = normalized(text, self.white_space(*id));
                        self.check(*id, &text, 0).is_ok()
                    });
                }
                _ => return None,
            }
        }
        None
    }
}

/// A number as JSON writes it; what JSON has no number for stays a text.
fn float(text: &str) -> Value {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, Some(exponent)),
        None => (text, None),
    };
    let Some(number) = Decimal::parse(digits) else {
        return value::text(text);
    };
    match exponent {
        None => value::number(&number.text()),
        Some(exponent) => value::number(&format!("{}e{exponent}", number.text())),
    }
}

fn name_value(text: &str, around: &Element) -> Result<Value, MapError> {
    match around.resolve(text) {
        Some((Some(namespace), local)) => Ok(value::text(format!("{{{namespace}}}{local}"))),
        Some((None, local)) => Ok(value::text(local)),
        None => Err(MapError::new("is a name whose prefix is not declared")),
    }
}
