//! Names of files: media types, names for the second file of one name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use component::content::Format;

/// What stands behind the name of a failed file for the file that says why.
const ERROR: &str = ".error.json";

/// The most bytes of a name on every file system of today.
const NAME_MAX: usize = 255;

/// How many names are tried for one file.
pub(super) const NAMES_MAX: u32 = 1000;

/// The media type of a file: that of the format, or by the end of its name.
pub(crate) fn media_type(name: &OsStr, format: Option<Format>) -> &'static str {
    let extension = Path::new(name).extension().unwrap_or_default();
    let is = |ending: &str| extension.eq_ignore_ascii_case(ending);
    match format {
        Some(Format::Json) => "application/json",
        Some(Format::Xml) => "application/xml",
        Some(Format::Form) => "application/x-www-form-urlencoded",
        Some(Format::Csv) => "text/csv",
        Some(Format::Text) => "text/plain",
        Some(Format::Bytes) => "application/octet-stream",
        None if is("json") => "application/json",
        None if is("xml") => "application/xml",
        None if is("csv") => "text/csv",
        None if is("txt") => "text/plain",
        None => "application/octet-stream",
    }
}

/// The name for the file that is the `number`th of its name: from the second on the time stands
/// before its ending.
pub(super) fn numbered(name: &OsStr, number: u32, time: &str) -> OsString {
    let behind = match number {
        0 => return name.to_owned(),
        1 => format!(".{time}"),
        number => format!(".{time}-{number}"),
    };
    let path = Path::new(name);
    let ending = path.extension().map(|it| it.as_bytes()).unwrap_or_default();
    let point = usize::from(!ending.is_empty());
    let longest = NAME_MAX.saturating_sub(ERROR.len() + behind.len() + point + ending.len());
    let stem = path.file_stem().unwrap_or(name).as_bytes();
    let mut made = cut(stem, longest).to_vec();
    made.extend_from_slice(behind.as_bytes());
    if point > 0 {
        made.push(b'.');
        made.extend_from_slice(ending);
    }
    OsString::from_vec(made)
}

/// The name of the file that says why a file has failed.
pub(super) fn error_name(name: &OsStr) -> OsString {
    let mut made = cut(name.as_bytes(), NAME_MAX - ERROR.len()).to_vec();
    made.extend_from_slice(ERROR.as_bytes());
    OsString::from_vec(made)
}

/// The beginning of a name, whole letters only.
fn cut(name: &[u8], longest: usize) -> &[u8] {
    if name.len() <= longest {
        return name;
    }
    let begins_letter = |at: &usize| name.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end = (0..=longest).rev().find(begins_letter).unwrap_or_default();
    name.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_files_of_a_name_carry_the_time() {
        let numbered = |name: &str, number| {
            let made = numbered(OsStr::new(name), number, "20260102T030405Z");
            made.into_string().unwrap()
        };
        assert_eq!(numbered("a.json", 0), "a.json");
        assert_eq!(numbered("a.json", 1), "a.20260102T030405Z.json");
        assert_eq!(numbered("a.tar.gz", 2), "a.tar.20260102T030405Z-2.gz");
        assert_eq!(numbered("a", 1), "a.20260102T030405Z");
        let long = numbered(&format!("{}.json", "å".repeat(124)), 1);
        assert!(
            long.len() <= 244 && long.ends_with(".20260102T030405Z.json"),
            "{long}"
        );
        let long = error_name(OsStr::new(&format!("a{}", "å".repeat(127))));
        assert_eq!(long.len(), 254, "whole letters");
    }

    #[test]
    fn the_media_type_goes_by_the_format_then_by_the_name() {
        for (name, format, expected) in [
            ("a.JSON", None, "application/json"),
            ("a.csv", None, "text/csv"),
            ("a", None, "application/octet-stream"),
            ("a.xml", Some(Format::Text), "text/plain"),
        ] {
            assert_eq!(media_type(OsStr::new(name), format), expected, "{name}");
        }
    }
}
