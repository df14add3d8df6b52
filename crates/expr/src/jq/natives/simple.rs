//! Functions that give one result and call no filter, for the quick way to evaluate.

use jaq_core::ValT as _;
use jaq_std::ValT as _;

use super::base;
use crate::jq::counted::{Counted, Result};
use crate::jq::walk;
use crate::value::{self, Value};

type Function = fn(Counted) -> Result;
type FunctionOfTwo = fn(&Value, &Value) -> Result;

/// A function of the input alone.
pub(in crate::jq) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "length" => base::length,
        "tojson" => |it| base::to_json(&it),
        "tonumber" => base::to_number,
        "keys" => |it| base::sorted(&keys(it)?),
        "keys_unsorted" => keys,
        "type" => |it| Ok(Counted::from(type_name(&it.value).to_owned())),
        "ascii_downcase" => |it| cased(&it, u8::to_ascii_lowercase),
        "ascii_upcase" => |it| cased(&it, u8::to_ascii_uppercase),
        "first" => |it| it.index(&Counted::from(0_isize)),
        "last" => |it| it.index(&Counted::from(-1_isize)),
        "add" => add,
        "sort" => |it| base::sorted(&it),
        "list" => |it| match it.value {
            Value::Null => Ok(Counted::scalar(value::array([]))),
            Value::Arr(_) => Ok(it),
            other => Ok(Counted::array(vec![other], it.depth)?),
        },
        _ => return None,
    })
}

/// A function of the input and one argument that is evaluated once.
pub(in crate::jq) fn function_of_two(name: &str) -> Option<FunctionOfTwo> {
    Some(match name {
        "startswith" => |whole, part| strings(whole, part, |whole, part| whole.starts_with(part)),
        "endswith" => |whole, part| strings(whole, part, |whole, part| whole.ends_with(part)),
        "contains" => |whole, part| Ok(walk::contains(whole, part)?.into()),
        _ => return None,
    })
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::BStr(_) => "string",
        other => value::kind(other),
    }
}

fn keys(whole: Counted) -> Result {
    whole
        .key_values()
        .map(|pair| pair.map(|(key, _)| key))
        .collect()
}

fn cased(text: &Counted, change: fn(&u8) -> u8) -> Result {
    match text.is_utf8_str() {
        true => {
            let text: Vec<u8> = text.string()?.iter().map(change).collect();
            Ok(Counted::from_utf8_bytes(text))
        }
        false => Err(text.clone().typ("string")),
    }
}

fn add(whole: Counted) -> Result {
    let mut sum = Counted::scalar(Value::Null);
    for item in whole.values() {
        sum = (sum + item?)?;
    }
    Ok(sum)
}

fn strings(whole: &Value, part: &Value, test: fn(&[u8], &[u8]) -> bool) -> Result {
    let (whole, part) = (
        Counted::outside(whole.clone()),
        Counted::outside(part.clone()),
    );
    let truth = test(whole.string()?, part.string()?);
    Ok(truth.into())
}
