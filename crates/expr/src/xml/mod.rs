//! XML documents as trees whose names are resolved (Namespaces in XML 1.0), and the way back.
//!
//! The rules of well-formedness are those of [`crate::convert`]: a document type declaration is
//! refused, so nothing is ever expanded. [`Writer`] writes documents; [`free`] is the mapping of
//! `docs/json-xml.md` for content that no schema describes.

pub mod free;
mod tree;
mod write;

pub use crate::convert::name::is_plain_name;
pub use tree::{Attribute, Element, XmlError, parse};
pub use write::{NotXml, Writer};

/// The namespace of the prefix `xml`, which is never declared.
pub const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
/// The namespace of `xsi:type` and `xsi:nil` (XML Schema Part 1, section 2.6).
pub const XSI_NAMESPACE: &str = "http://www.w3.org/2001/XMLSchema-instance";
