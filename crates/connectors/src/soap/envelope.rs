//! SOAP envelopes: a request around a body, and what an answer holds (SOAP 1.1, sections 4 to 6;
//! SOAP 1.2 Part 1, section 5).

use std::time::Duration;

use bytes::Bytes;
use component::content::charset;
use expr::encoding::xml_to_utf8;
use expr::value::{self, Value};
use expr::xml::free::{self, Declared};
use expr::xml::{Element, NotXml, Writer};

use crate::soap::names::{QName, SOAP11, SOAP12};
use crate::soap::security::Security;
use crate::soap::wsdl::{FaultShape, HeaderShape, MessageShape, Version};
use crate::soap::xsd::encode::Encoder;
use crate::soap::xsd::map_error::MapError;
use crate::soap::xsd::model::{Model, Type};

/// The most elements of a message within each other.
const DEPTH_MAX: usize = 128;

/// A message that is being written.
pub struct Message<'a> {
    /// The version.
    pub version: Version,
    /// What its parts are made of.
    pub model: &'a Model,
    /// Body and header.
    pub shape: &'a MessageShape,
    /// The most bytes.
    pub size_max: usize,
}

impl Message<'_> {
    /// The envelope around a body and header blocks. `token` is the time and a nonce for the
    /// security header.
    ///
    /// # Errors
    /// When body or blocks are not what the schema says.
    pub fn write(
        &self,
        body: &Value,
        blocks: Option<&Value>,
        security: Option<(&Security, (Duration, &[u8]))>,
    ) -> Result<String, MapError> {
        let envelope = Some(self.version.envelope());
        let mut out = Writer::new(self.size_max);
        out.start(envelope, "Envelope").map_err(not_xml)?;
        let blocks = blocks.filter(|it| !matches!(it, Value::Null));
        if blocks.is_some() || security.is_some() {
            out.start(envelope, "Header").map_err(not_xml)?;
            if let Some((security, now)) = security {
                security
                    .write(self.version, now, &mut out)
                    .map_err(not_xml)?;
            }
            if let Some(blocks) = blocks {
                self.blocks(blocks, &mut out)?;
            }
            out.end(envelope, "Header");
        }
        out.start(envelope, "Body").map_err(not_xml)?;
        match &self.shape.body {
            None if matches!(body, Value::Null) || is_empty(body) => {}
            None => return Err(MapError::new("the operation has no body")),
            Some(element) => {
                // An operation without arguments needs no body.
                let nothing = value::object([]);
                let is_object = matches!(self.model.get(element.ty), Type::Complex(_));
                let is_nothing = matches!(body, Value::Null) && !element.is_nillable;
                let body = if is_nothing && is_object {
                    &nothing
                } else {
                    body
                };
                let mut encoder = Encoder {
                    model: self.model,
                    out: &mut out,
                    depth: 0,
                };
                match self.shape.is_bare {
                    true => encoder.content(element, body)?,
                    false => encoder.element(element, body)?,
                }
            }
        }
        out.end(envelope, "Body");
        out.end(envelope, "Envelope");
        Ok(out.finish())
    }

    /// Blocks of the header by their names; those that are declared by their declarations.
    fn blocks(&self, blocks: &Value, out: &mut Writer) -> Result<(), MapError> {
        let Some(members) = value::members(blocks) else {
            let kind = value::kind(blocks);
            return Err(MapError::new(format!(
                "the header is an object, not {kind}"
            )));
        };
        for (name, block) in members {
            let is_it = |it: &&HeaderShape| *it.element.name.local == *name;
            let within = |error: MapError| error.within(name, None);
            match self.shape.headers.iter().find(is_it) {
                Some(declared) => {
                    let (model, depth) = (self.model, 0);
                    let mut encoder = Encoder { model, out, depth };
                    encoder.element(&declared.element, block).map_err(within)?;
                }
                None => {
                    // Blocks have a namespace (SOAP 1.1, section 4.2.1).
                    if value::get(block, "@xmlns")
                        .and_then(value::as_text)
                        .is_none_or(str::is_empty)
                    {
                        let what = "is not declared: say its namespace as `@xmlns`";
                        return Err(within(MapError::new(what)));
                    }
                    free::write(name, block, &Declared::default(), out)
                        .map_err(|error| within(MapError::new(error.0)))?;
                }
            }
        }
        Ok(())
    }
}

fn is_empty(value: &Value) -> bool {
    value::members(value).is_some_and(|mut it| it.next().is_none())
}

fn not_xml(error: NotXml) -> MapError {
    MapError::new(error.to_string())
}

/// An envelope that has been read.
#[derive(Debug)]
pub struct Envelope {
    /// Its version.
    pub version: Version,
    /// The blocks of its header.
    pub blocks: Vec<Element>,
    /// What stands in its body.
    pub body: Vec<Element>,
}

impl Envelope {
    /// Reads one of this media type.
    ///
    /// # Errors
    /// Why the text is no envelope.
    pub fn read(text: &Bytes, content_type: &[u8]) -> Result<Self, NoEnvelope> {
        let text = xml_to_utf8(text, charset(content_type)).map_err(NoEnvelope::other)?;
        let root = expr::xml::parse(&text, DEPTH_MAX).map_err(NoEnvelope::other)?;
        let version = match (root.namespace.as_deref(), root.name.as_str()) {
            (Some(SOAP11), "Envelope") => Version::V11,
            (Some(SOAP12), "Envelope") => Version::V12,
            (_, "Envelope") => return Err(NoEnvelope::Version),
            (_, name) => {
                let name: String = name.chars().take(60).collect();
                let reason = format!("it is no SOAP envelope but `{}`", name.escape_debug());
                return Err(NoEnvelope::Other(reason));
            }
        };
        let namespace = version.envelope();
        let mut envelope = Self {
            version,
            blocks: Vec::new(),
            body: Vec::new(),
        };
        let mut has_body = false;
        for child in root.children {
            if child.is(namespace, "Header") && !has_body {
                envelope.blocks = child.children;
            } else if child.is(namespace, "Body") && !has_body {
                has_body = true;
                envelope.body = child.children;
            } else if has_body && version == Version::V11 {
                // SOAP 1.1, section 4: elements may follow the body.
                break;
            } else {
                let reason = "the envelope holds more than a header and a body";
                return Err(NoEnvelope::Other(reason.to_owned()));
            }
        }
        match has_body {
            true => Ok(envelope),
            false => Err(NoEnvelope::Other("the envelope has no body".to_owned())),
        }
    }

    /// The fault in it, when it is one.
    pub fn fault(&self, model: &Model, declared: &[FaultShape]) -> Option<SoapFault> {
        let namespace = self.version.envelope();
        let fault = self.body.first().filter(|it| it.is(namespace, "Fault"))?;
        Some(SoapFault::read(fault, self.version, model, declared))
    }
}

/// Why a text is no envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEnvelope {
    /// It is one of a version that nobody knows.
    Version,
    /// It is something else.
    Other(String),
}

impl NoEnvelope {
    fn other(error: impl ToString) -> Self {
        Self::Other(error.to_string())
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        match self {
            Self::Version => "the envelope is of an unknown version of SOAP",
            Self::Other(reason) => reason,
        }
    }
}

/// A fault (SOAP 1.1, section 4.4; SOAP 1.2 Part 1, section 5.4).
#[derive(Clone, Debug, PartialEq)]
pub struct SoapFault {
    /// The local part of its code: `Client`, `Server`, `Sender`, `Receiver`, ...
    pub code: String,
    /// The local parts of its subcodes, of SOAP 1.2.
    pub subcodes: Vec<String>,
    /// Why, for people.
    pub reason: String,
    /// Who.
    pub actor: Option<String>,
    /// The name of the first element of its detail.
    pub name: Option<String>,
    /// Its detail by the names of its elements.
    pub detail: Value,
}

impl SoapFault {
    fn read(fault: &Element, version: Version, model: &Model, declared: &[FaultShape]) -> Self {
        let child = |around: &'_ Element, name: &str| -> Option<Element> {
            let mut children = around.children.iter();
            children.find(|it| it.name == name).cloned()
        };
        let text = |name: &str| child(fault, name).map(|it| it.text.trim().to_owned());
        let local = |text: &str| {
            text.rsplit(':')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let mut read = Self {
            code: String::new(),
            subcodes: Vec::new(),
            reason: String::new(),
            actor: None,
            name: None,
            detail: Value::Null,
        };
        let detail = match version {
            Version::V11 => {
                read.code = local(&text("faultcode").unwrap_or_default());
                read.reason = text("faultstring").unwrap_or_default();
                read.actor = text("faultactor").filter(|it| !it.is_empty());
                child(fault, "detail")
            }
            Version::V12 => {
                let mut code = child(fault, "Code");
                for depth in 0..16 {
                    let Some(it) = code else { break };
                    let value = child(&it, "Value")
                        .map(|it| local(&it.text))
                        .unwrap_or_default();
                    match depth {
                        0 => read.code = value,
                        _ => read.subcodes.push(value),
                    }
                    code = child(&it, "Subcode");
                }
                let reason = child(fault, "Reason");
                let reason = reason.as_ref().and_then(|it| it.children.first());
                read.reason = reason
                    .map(|it| it.text.trim().to_owned())
                    .unwrap_or_default();
                read.actor = text("Role").filter(|it| !it.is_empty());
                child(fault, "Detail")
            }
        };
        let entries = detail.map(|it| it.children).unwrap_or_default();
        read.name = entries.first().map(|it| it.name.clone());
        if !entries.is_empty() {
            let members = entries.iter().map(|entry| {
                let is_it = |it: &&FaultShape| it.element.name.names(entry);
                let known = declared.iter().find(is_it);
                let content = known.and_then(|it| model.decode(&it.element, entry).ok());
                // What does not fit its declaration is shown as it is.
                let content = content.unwrap_or_else(|| free::to_value(entry, None));
                (entry.name.clone(), content)
            });
            read.detail = value::object(free::group(members));
        }
        read
    }

    /// Whether the one who asked is to blame.
    pub fn blames_client(&self) -> bool {
        // SOAP 1.1, section 4.4.1: what follows a point narrows the code.
        let code = self.code.split('.').next().unwrap_or_default();
        matches!(
            code,
            "Client" | "Sender" | "MustUnderstand" | "VersionMismatch"
        )
    }

    /// The name that flows know it by.
    pub fn type_name(&self) -> &str {
        self.name.as_deref().unwrap_or(FAULT)
    }

    /// As `$reply.body` shows it.
    pub fn value(&self) -> Value {
        let text = |text: &str| value::text(text);
        let mut members = vec![
            ("fault".to_owned(), text(self.type_name())),
            ("code".to_owned(), text(&self.code)),
            ("reason".to_owned(), text(&self.reason)),
        ];
        if !self.subcodes.is_empty() {
            let codes = self.subcodes.iter().map(|it| text(it));
            members.push(("subcodes".to_owned(), value::array(codes)));
        }
        if let Some(actor) = &self.actor {
            members.push(("actor".to_owned(), text(actor)));
        }
        members.push(("detail".to_owned(), self.detail.clone()));
        value::object(members)
    }
}

/// The type of a fault without a detail.
pub const FAULT: &str = "soap-fault";

/// The content of the body of a message.
///
/// # Errors
/// When it is not what the schema says.
pub fn body_value(
    shape: &MessageShape,
    model: &Model,
    is_rpc: bool,
    body: &[Element],
) -> Result<Value, MapError> {
    match (&shape.body, body) {
        (None, []) => Ok(Value::Null),
        (None, [first, ..]) => {
            Err(MapError::new("stands in a body that is empty").within(&first.name, None))
        }
        (Some(element), all) if shape.is_bare => model.decode_within(element, all),
        (Some(_), []) => Err(MapError::new("the body is empty")),
        (Some(element), [only]) => {
            // The name of the wrapper of an `rpc` answer says nothing (SOAP 1.1, section 7.1).
            if !is_rpc && !element.name.names(only) {
                let found = QName::new(only.namespace.as_deref(), &only.name);
                let what = format!("the body holds {found} and not {}", element.name);
                return Err(MapError::new(what));
            }
            model.decode(element, only)
        }
        (Some(_), _) => Err(MapError::new("the body holds several elements")),
    }
}
