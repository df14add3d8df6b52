//! Bodies within bodies: XML, forms and CSV.

use jaq_core::native::{bome, unary, v};

use super::Filter;
use crate::format;
use crate::jq::counted::{Counted, Error, Result};
use crate::jq::{meter, walk};
use crate::value::{self, Value};

pub(super) fn all() -> Vec<Filter> {
    vec![
        ("fromxml", v(0), |cv| {
            bome(read(&cv.1, |text| format::from_xml(text, 128)))
        }),
        ("toxml", v(0), |cv| {
            bome(write(&cv.1, |it| format::to_xml(it, usize::MAX)))
        }),
        ("fromform", v(0), |cv| {
            bome(read(&cv.1, |text| format::from_form(text)))
        }),
        ("toform", v(0), |cv| bome(write(&cv.1, format::to_form))),
        ("fromcsv", v(1), |cv| {
            unary(cv, |text, header| {
                let header = value::is_truthy(&header.value);
                read(&text, |bytes| {
                    let text = std::str::from_utf8(bytes).map_err(|it| it.to_string())?;
                    format::from_csv(text, header)
                })
            })
        }),
        ("tocsv", v(0), |cv| {
            bome(write(&cv.1, |it| {
                format::to_csv(it).map(String::into_bytes)
            }))
        }),
    ]
}

fn read(
    input: &Counted,
    read: impl Fn(&bytes::Bytes) -> std::result::Result<Value, String>,
) -> Result {
    let text = input.string()?;
    meter::steps(1 + text.len() / 16)?;
    // A field of two bytes becomes a member with its name.
    meter::memory(text.len().saturating_mul(24))?;
    read(text).map(Counted::outside).map_err(Error::str)
}

fn write(
    input: &Counted,
    write: impl Fn(&Value) -> std::result::Result<Vec<u8>, String>,
) -> Result {
    // What this walk counts bounds the size of the document, too.
    let mut text = Vec::new();
    walk::to_text(&input.value, &mut text)?;
    meter::memory(text.len().saturating_mul(4))?;
    meter::steps(text.len() / 16)?;
    let bytes = write(&input.value).map_err(Error::str)?;
    Ok(Counted::scalar(Value::utf8_str(bytes)))
}
