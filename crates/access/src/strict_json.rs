//! JSON in which nothing can be read in two ways.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses a JSON object. Unlike `serde_json`'s own `Value`, which takes the last of several members
/// of one name, it takes none: two parsers would see two documents (RFC 7515, section 4; RFC 7519,
/// section 4). Nesting is bounded by `serde_json`, to 128 levels.
///
/// # Errors
/// When the text is not one JSON object, or two members of an object share a name.
pub fn object(text: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(Error::custom("it is no object")),
    }
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("no finite number"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if all.contains_key(&name) {
                return Err(Error::custom("two members have one name"));
            }
            let value = members.next_value_seed(Strict)?;
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::object;

    #[test]
    fn members_of_one_name_are_refused_at_every_depth() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"b":{"a":1,"c":[],"a":2}}"#,
            r#"{"b":[{"a":1,"\u0061":2}]}"#,
        ] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        let fine = br#"{"a":{"a":[null,true,-1,1.5,"x",{"a":""}]},"b":1}"#;
        let expected: serde_json::Value = serde_json::from_slice(fine).unwrap();
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
