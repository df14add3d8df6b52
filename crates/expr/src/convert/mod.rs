//! JSON to XML and back, by the rules of Ballerina's `xmldata` (`docs/json-xml.md`).
//!
//! [`JsonToXml`] goes from bytes to bytes in one pass and builds no tree. [`XmlToJson`] notes
//! where elements and texts lie and writes from these notes, since siblings of one name, however
//! far apart, become one array.

pub(crate) mod error;
mod json_text;
mod json_to_xml;
mod locate;
pub(crate) mod name;
pub(crate) mod xml_notes;
pub(crate) mod xml_text;
mod xml_to_json;

pub use error::{ConvertError, ConvertErrorKind};
pub use json_to_xml::{JsonToXml, Root};
pub use name::is_name;
pub use xml_to_json::{XmlRoot, XmlToJson};
