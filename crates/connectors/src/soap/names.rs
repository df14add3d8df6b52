//! Qualified names, and the namespaces of the standards.

use std::fmt;
use std::sync::Arc;

use expr::xml::Element;

use crate::soap::problem::{Place, Problem};

/// WSDL 1.1.
pub const WSDL: &str = "http://schemas.xmlsoap.org/wsdl/";
/// The SOAP 1.1 binding of WSDL 1.1 (section 3).
pub const WSDL_SOAP11: &str = "http://schemas.xmlsoap.org/wsdl/soap/";
/// The SOAP 1.2 binding of WSDL 1.1.
pub const WSDL_SOAP12: &str = "http://schemas.xmlsoap.org/wsdl/soap12/";
/// The MIME binding of WSDL 1.1 (section 5).
pub const WSDL_MIME: &str = "http://schemas.xmlsoap.org/wsdl/mime/";
/// WSDL 2.0.
pub const WSDL20: &str = "http://www.w3.org/ns/wsdl";
/// XML Schema.
pub const XS: &str = "http://www.w3.org/2001/XMLSchema";
/// The envelope of SOAP 1.1.
pub const SOAP11: &str = "http://schemas.xmlsoap.org/soap/envelope/";
/// The envelope of SOAP 1.2.
pub const SOAP12: &str = "http://www.w3.org/2003/05/soap-envelope";
/// The encoding of SOAP 1.1 (section 5).
pub const ENCODING11: &str = "http://schemas.xmlsoap.org/soap/encoding/";
/// The encoding of SOAP 1.2.
pub const ENCODING12: &str = "http://www.w3.org/2003/05/soap-encoding";

/// A name and its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QName {
    /// The namespace.
    pub namespace: Option<Arc<str>>,
    /// The name in it.
    pub local: Arc<str>,
}

impl QName {
    /// A name in a namespace.
    pub fn new(namespace: Option<&str>, local: &str) -> Self {
        Self {
            namespace: namespace.map(Arc::from),
            local: local.into(),
        }
    }

    /// Whether it is this name of this namespace.
    pub fn is(&self, namespace: Option<&str>, local: &str) -> bool {
        *self.local == *local && self.namespace.as_deref() == namespace
    }

    /// Whether an element has this name.
    pub fn names(&self, element: &Element) -> bool {
        self.is(element.namespace.as_deref(), &element.name)
    }

    /// What a text of an element names.
    ///
    /// # Errors
    /// When its prefix is not declared.
    pub fn read(text: &str, element: &Element, file: &Arc<str>) -> Result<Self, Problem> {
        let Some((namespace, local)) = element.resolve(text) else {
            let place = Place {
                file: Arc::clone(file),
                line: element.line,
            };
            let shown = text.escape_debug();
            return Err(Problem::new(
                &place,
                format!("`{shown}` has a prefix that is not declared"),
            ));
        };
        Ok(Self {
            namespace,
            local: local.into(),
        })
    }
}

impl fmt::Display for QName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => {
                let namespace = namespace.escape_debug();
                write!(formatter, "`{}` of `{namespace}`", self.local)
            }
            None => write!(formatter, "`{}` without a namespace", self.local),
        }
    }
}
