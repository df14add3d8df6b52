//! JSON in which nothing can be read in two ways.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Up to so many members of an object are compared with each other; the names of more are sorted.
const COMPARED_MAX: usize = 16;

/// Parses a JSON object. Unlike `serde_json`'s own `Value`, which takes the last of several members
/// of one name, it takes none: two parsers would see two documents (RFC 7515, section 4; RFC 7519,
/// section 4). Nesting is bounded by `serde_json`, to 128 levels.
///
/// # Errors
/// When the text is not one JSON object, or two members of an object share a name.
pub fn object(text: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    members(text).map(Members::into_map)
}

/// The same, borrowed from the text as far as that has no escapes: tokens are parsed for each
/// request that brings a new one.
///
/// # Errors
/// As [`object`].
pub fn members(text: &[u8]) -> Result<Members<'_>, serde_json::Error> {
    // Once for all of it: the parser would look at each text by itself.
    let text = std::str::from_utf8(text).map_err(Error::custom)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // Most claims have few members of their own.
    let value = Strict(COMPARED_MAX).deserialize(&mut deserializer)?;
    deserializer.end()?;
    match value {
        Json::Object(members) => Ok(members),
        _ => Err(Error::custom("it is no object")),
    }
}

/// A JSON value that borrows from its text.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A finite number.
    Number(Number),
    /// A text.
    Text(Cow<'a, str>),
    /// An array.
    List(Vec<Self>),
    /// An object.
    Object(Members<'a>),
}

/// The members of an object, each name once, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Json<'a> {
    /// It, if it is a text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Its members, if it is an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&Members<'a>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Its items, if it is an array.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(flag),
            Self::Number(number) => Value::Number(number),
            Self::Text(text) => Value::String(text.into_owned()),
            Self::List(items) => items.into_iter().map(Self::into_value).collect(),
            Self::Object(members) => Value::Object(members.into_map()),
        }
    }
}

impl<'a> Members<'a> {
    /// The member of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        let found = self.0.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| value)
    }

    /// The value of the member of this name, if it is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Whether there is a member of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same, which borrows nothing.
    #[must_use]
    pub fn into_map(self) -> Map<String, Value> {
        let owned =
            |(name, value): (Cow<'a, str>, Json<'a>)| (name.into_owned(), value.into_value());
        self.0.into_iter().map(owned).collect()
    }

    /// Whether two members share a name. It costs no more than the order of their number.
    fn has_same_names(&self) -> bool {
        let names = self.0.iter().map(|(name, _)| &**name);
        if self.0.len() <= COMPARED_MAX {
            let mut rest = names.clone();
            return names.into_iter().any(|name| {
                rest.next();
                rest.clone().any(|it| it == name)
            });
        }
        let mut sorted: Vec<&str> = names.collect();
        sorted.sort_unstable();
        sorted.array_windows().any(|[one, next]| one == next)
    }
}

/// With room for so many members.
struct Strict(usize);

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Json<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json<'de>, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("no finite number"))?;
        Ok(Json::Number(number))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(Strict(0))? {
            all.push(item);
        }
        Ok(Json::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json<'de>, A::Error> {
        let mut all = Members(Vec::with_capacity(self.0));
        while let Some(Name(name)) = members.next_key()? {
            let value = members.next_value_seed(Strict(0))?;
            all.0.push((name, value));
        }
        match all.has_same_names() {
            true => Err(Error::custom("two members have one name")),
            false => Ok(Json::Object(all)),
        }
    }
}

/// A name, borrowed where it can be. Serde's own `Cow` is always owned.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Strict(0).deserialize(deserializer)? {
            Json::Text(name) => Ok(Self(name)),
            _ => Err(Error::custom("a name is no text")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{members, object};

    /// A text of any kind, with escapes and without.
    fn text(random: &mut fastrand::Rng) -> String {
        let parts = ["a", "b", "\u{e9}", "\"", "\\", "\n", "\u{1f600}", "/", " "];
        let length = random.usize(..6);
        (0..length)
            .map(|_| parts[random.usize(..parts.len())])
            .collect()
    }

    fn value(random: &mut fastrand::Rng, depth: usize) -> Value {
        match random.u8(..if depth == 0 { 5 } else { 7 }) {
            0 => Value::Null,
            1 => random.bool().into(),
            2 => random.i64(..).into(),
            3 => json!(random.f64() * 1e20),
            4 => text(random).into(),
            5 => (0..random.usize(..5))
                .map(|_| value(random, depth - 1))
                .collect(),
            _ => {
                let count = random.usize(..40);
                let members = (0..count).map(|_| (text(random), value(random, depth - 1)));
                Value::Object(members.collect())
            }
        }
    }

    /// Whatever `serde_json` writes is read as the same, and refused as soon as one member is there
    /// twice, however it is spelt.
    #[test]
    fn it_reads_what_others_write() {
        let mut random = fastrand::Rng::with_seed(18);
        for _ in 0..300 {
            let members: Map<String, Value> = (0..random.usize(1..30))
                .map(|_| (text(&mut random), value(&mut random, 3)))
                .collect();
            let written = Value::Object(members.clone()).to_string();
            // Not `members`: the last digit of a number may be another one.
            let expected: Map<String, Value> = serde_json::from_str(&written).unwrap();
            assert_eq!(object(written.as_bytes()).unwrap(), expected, "{written}");
            let (name, _) = members.iter().nth(random.usize(..members.len())).unwrap();
            let escaped: String = name
                .encode_utf16()
                .map(|it| format!("\\u{it:04x}"))
                .collect();
            for again in [json!(name).to_string(), format!("\"{escaped}\"")] {
                let twice = format!("{{{again}:1,{}", &written[1..]);
                assert!(self::members(twice.as_bytes()).is_err(), "{twice}");
                let inside = format!("{{\"x\":[{twice}]}}");
                assert!(self::members(inside.as_bytes()).is_err(), "{inside}");
            }
        }
    }

    /// A text is borrowed where it has no escapes: otherwise each would cost an allocation.
    #[test]
    fn texts_without_escapes_are_borrowed() {
        let written = String::from(r#"{"name":"plain","other":"with \n"}"#);
        let read = members(written.as_bytes()).unwrap();
        let within = written.as_bytes().as_ptr_range();
        assert!(within.contains(&read.text("name").unwrap().as_ptr()));
        assert_eq!(read.text("other"), Some("with \n"));
    }

    #[test]
    fn members_of_one_name_are_refused_at_every_depth() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"b":{"a":1,"c":[],"a":2}}"#,
            r#"{"b":[{"a":1,"\u0061":2}]}"#,
        ] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        let many = |last: &str| {
            let members: Vec<String> = (0..40).map(|it| format!("\"{it}\":1")).collect();
            format!("{{{},\"{last}\":1}}", members.join(","))
        };
        assert!(object(many("40").as_bytes()).is_ok() && object(many("7").as_bytes()).is_err());
        let fine = br#"{"a":{"a":[null,true,-1,1.5,"x",{"a":""}]},"b":1}"#;
        let expected: Value = serde_json::from_slice(fine).unwrap();
        assert_eq!(object(fine).unwrap(), *expected.as_object().unwrap());
    }

    #[test]
    fn one_object_and_nothing_else_is_taken() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        for text in [
            "",
            "[]",
            "1",
            "{} {}",
            "{},",
            "{\"a\":1",
            "{\"a\":NaN}",
            &deep,
        ] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        assert!(object(b" {\n} ").unwrap().is_empty());
        assert!(object(b"{\"a\":\"\xff\"}").is_err());
    }
}
