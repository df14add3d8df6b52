//! Schemas that many services import from the web, brought along because nothing is fetched. They
//! declare the names of the standards, not their wording.

use bytes::Bytes;
use expr::xml::XML_NAMESPACE;

use crate::soap::names::{ENCODING11, ENCODING12, WSDL, XS};

/// Folder of the files that are brought along. No file of a service can be there.
const FOLDER: &str = "://";

/// Namespaces and the files that declare them.
const FILES: [(&str, &str, &str); 3] = [
    (
        "http://www.w3.org/2005/08/addressing",
        "ws-addr.xsd",
        include_str!("known/ws-addr.xsd"),
    ),
    (
        "http://schemas.xmlsoap.org/ws/2004/08/addressing",
        "addressing-2004.xsd",
        include_str!("known/addressing-2004.xsd"),
    ),
    (
        "http://ws-i.org/profiles/basic/1.1/xsd",
        "swaref.xsd",
        include_str!("known/swaref.xsd"),
    ),
];

/// Whether the declarations of a namespace are known without a file.
pub(super) fn is_built_in(namespace: Option<&str>) -> bool {
    let plain = namespace.map(|it| it.trim_end_matches('/'));
    [XML_NAMESPACE, ENCODING11, ENCODING12, XS, WSDL]
        .iter()
        .any(|it| Some(it.trim_end_matches('/')) == plain)
}

/// The name of the file that is brought along for an import from another machine, or by a path from
/// the root of whatever the service's author had.
pub(super) fn file(namespace: Option<&str>, location: &str) -> Option<String> {
    if !location.contains("://") && !location.starts_with('/') {
        return None;
    }
    let (_, name, _) = FILES.iter().find(|(known, ..)| namespace == Some(known))?;
    Some(format!("{FOLDER}{name}"))
}

/// The content of a file that is brought along.
pub(super) fn read(name: &str) -> Option<Bytes> {
    let name = name.strip_prefix(FOLDER)?;
    let (.., text) = FILES.iter().find(|(_, known, _)| *known == name)?;
    Some(Bytes::from_static(text.as_bytes()))
}
