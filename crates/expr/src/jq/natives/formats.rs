//! Bodies within bodies: XML, forms and CSV.

use jaq_core::native::{bome, unary, v};

use super::Filter;
use crate::format::{self, NotWritten};
use crate::jq::counted::{Counted, Error, Result};
use crate::jq::{meter, walk};
use crate::value::{self, Value};

pub(super) fn all() -> Vec<Filter> {
    vec![
        ("fromxml", v(0), |cv| {
            bome(read(&cv.1, |text| format::from_xml(text, 128)))
        }),
        ("toxml", v(0), |cv| bome(write(&cv.1, format::to_xml))),
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
            bome(write(&cv.1, |it, size_max| {
                format::to_csv(it, true, size_max).map(String::into_bytes)
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
    write: impl Fn(&Value, usize) -> std::result::Result<Vec<u8>, NotWritten>,
) -> Result {
    let mut text = Vec::new();
    walk::to_text(&input.value, &mut text)?;
    meter::steps(text.len() / 16)?;
    // A name may stand in the document for each entry of a list, so its size says little of the
    // document's: what is written is paid for before.
    let mut size_max = text.len().saturating_mul(4);
    drop(text);
    loop {
        meter::memory(size_max)?;
        meter::steps(size_max / 64)?;
        match write(&input.value, size_max) {
            Ok(bytes) => return Ok(Counted::scalar(Value::utf8_str(bytes))),
            Err(NotWritten::TooLarge) => size_max = size_max.saturating_mul(2).max(256),
            Err(error) => return Err(Error::str(error)),
        }
    }
}
