//! An operation of a port: the shapes of its messages, ready to be used.

use std::sync::Arc;

use expr::xml::Element;

use crate::soap::names::{QName, WSDL, WSDL_MIME};
use crate::soap::problem::{Place, Problem};
use crate::soap::wsdl::port::Port;
use crate::soap::wsdl::read::{Document, Wsdl};
use crate::soap::xsd::compile::{Compiler, check_name};
use crate::soap::xsd::content::{Made, once};
use crate::soap::xsd::model::{Complex, ElementUse, Model, Particle, Term, Type, TypeId};

/// An operation.
#[derive(Debug)]
pub struct Operation {
    /// Its name.
    pub name: Arc<str>,
    /// What `SOAPAction` says.
    pub action: Arc<str>,
    /// What is sent.
    pub input: MessageShape,
    /// What comes back; nothing does from a one-way operation.
    pub output: Option<MessageShape>,
    /// The faults that it declares.
    pub faults: Vec<FaultShape>,
    /// What all of them are made of.
    pub model: Model,
    /// Whether messages are wrapped in the operation's name.
    pub is_rpc: bool,
}

/// A message.
#[derive(Debug, Default)]
pub struct MessageShape {
    /// What stands in the SOAP body; nothing does without one.
    pub body: Option<ElementUse>,
    /// Whether the body holds the elements within `body`, one after the other, and not that element
    /// itself: messages of several parts in `document` style.
    pub is_bare: bool,
    /// The blocks of the SOAP header.
    pub headers: Vec<HeaderShape>,
}

/// A declared block of the SOAP header.
#[derive(Debug)]
pub struct HeaderShape {
    /// The block.
    pub element: ElementUse,
}

/// A declared fault.
#[derive(Debug)]
pub struct FaultShape {
    /// The fault's name.
    pub name: Arc<str>,
    /// What stands in its detail.
    pub element: ElementUse,
}

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// What an operation is read with.
struct Reading<'a, 'p> {
    wsdl: &'a Wsdl,
    port: &'p Port<'a>,
    /// The operation in the binding.
    bound: &'a Element,
    is_rpc: bool,
    name: &'a str,
    compiler: Compiler<'a>,
}

impl Wsdl {
    /// The names of all operations of a port.
    pub fn operations<'a>(&self, port: &Port<'a>) -> Vec<&'a str> {
        let binding: &'a Element = port.binding;
        let bound = binding
            .children
            .iter()
            .filter(|it| it.is(WSDL, "operation"));
        bound.filter_map(|it| it.attribute("name")).collect()
    }

    /// An operation of a port.
    ///
    /// # Errors
    /// When it is not there, or uses what is not supported.
    pub fn operation<'a>(&'a self, port: &Port<'a>, name: &str) -> Result<Operation, Problem> {
        let is_it = |it: &&Element| it.is(WSDL, "operation") && it.attribute("name") == Some(name);
        let mut all = port.binding.children.iter().filter(is_it);
        let place = port.document.place(port.binding);
        let Some(bound) = all.next() else {
            let names = self.operations(port);
            let problem = Problem::new(&place, format!("there is no operation `{name}`"));
            return Err(match config::suggest(name, names.iter().copied()) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem.hint(format!("there are: {}", names.join(", "))),
            });
        };
        if let Some(second) = all.next() {
            let message = format!("a second operation `{name}`: overloading is not supported");
            return Err(Problem::new(&port.document.place(second), message));
        }
        let soap = bound.all(port.version.binding(), "operation").next();
        let style = soap.and_then(|it| it.attribute("style"));
        let mut reading = Reading {
            wsdl: self,
            port,
            bound,
            is_rpc: style.map_or(port.is_rpc, |style| style == "rpc"),
            name: bound.attribute("name").unwrap_or_default(),
            compiler: Compiler::new(&self.schemas),
        };
        let (document, abstract_one) = reading.declaration()?;
        let one_way = abstract_one.all(WSDL, "output").next().is_none();
        let input = reading.message((document, abstract_one), Way::In)?;
        let output = match one_way {
            true => None,
            false => Some(reading.message((document, abstract_one), Way::Out)?),
        };
        let faults = reading.faults((document, abstract_one))?;
        Ok(Operation {
            name: name.into(),
            action: soap
                .and_then(|it| it.attribute("soapAction"))
                .unwrap_or_default()
                .into(),
            input,
            output,
            faults,
            is_rpc: reading.is_rpc,
            model: reading.compiler.finish()?,
        })
    }
}

impl<'a> Reading<'a, '_> {
    /// The operation in the port type.
    fn declaration(&self) -> Result<(&'a Document, &'a Element), Problem> {
        let Port {
            document, binding, ..
        } = *self.port;
        let ty = binding.attribute("type").unwrap_or_default();
        let (document, port_type) = self.wsdl.named("portType", ty, (document, binding))?;
        let mut operations = port_type.children.iter();
        let is_it =
            |it: &&Element| it.is(WSDL, "operation") && it.attribute("name") == Some(self.name);
        let Some(found) = operations.find(is_it) else {
            let message = format!("the port type has no operation `{}`", self.name);
            return Err(Problem::new(&document.place(port_type), message));
        };
        let mut messages = found.children.iter();
        let first = messages.find(|it| matches!(it.name.as_str(), "input" | "output"));
        if first.is_none_or(|it| it.name == "output") {
            let message = "an operation that the service begins is not supported";
            return Err(Problem::new(&document.place(found), message));
        }
        Ok((document, found))
    }

    fn place(&self, node: &Element) -> Place {
        self.port.document.place(node)
    }

    /// What the binding says of a message.
    fn bound(&self, way: Way) -> Option<&'a Element> {
        let name = if way == Way::In { "input" } else { "output" };
        self.bound.children.iter().find(|it| it.is(WSDL, name))
    }

    fn message(
        &mut self,
        (document, operation): (&'a Document, &'a Element),
        way: Way,
    ) -> Result<MessageShape, Problem> {
        let name = if way == Way::In { "input" } else { "output" };
        let mut named = operation.children.iter().filter(|it| it.is(WSDL, name));
        let node = named.next().unwrap_or(operation);
        let message = node.attribute("message").unwrap_or_default();
        let (document, message) = self.wsdl.named("message", message, (document, node))?;
        let bound = self.bound(way).unwrap_or(self.bound);
        if let Some(mime) = bound
            .children
            .iter()
            .find(|it| it.namespace.as_deref() == Some(WSDL_MIME))
        {
            return Err(
                Problem::new(&self.place(mime), "attachments are not supported")
                    .hint("a service without MIME in its binding sends them as xs:base64Binary"),
            );
        }
        let soap = self.port.version.binding();
        let body = bound.all(soap, "body").next();
        if let Some(body) = body {
            self.refuse_encoded(body)?;
        }
        let mut headers = Vec::new();
        let mut header_parts = Vec::new();
        for header in bound.all(soap, "header") {
            self.refuse_encoded(header)?;
            let part = header.attribute("part").unwrap_or_default();
            let name = header.attribute("message").unwrap_or_default();
            let around = (self.port.document, header);
            let (its_document, its_message) = self.wsdl.named("message", name, around)?;
            let namespace = header.attribute("namespace");
            let element =
                self.part_or_type((its_document, its_message), (part, namespace), header)?;
            headers.push(HeaderShape { element });
            if std::ptr::eq(its_message, message) {
                header_parts.push(part);
            }
        }
        let wanted = body.and_then(|it| it.attribute("parts"));
        let wanted: Option<Vec<&str>> = wanted.map(|it| it.split_ascii_whitespace().collect());
        let parts = message.children.iter().filter(|it| it.is(WSDL, "part"));
        let parts: Vec<&'a Element> = parts
            .filter(|part| {
                let name = part.attribute("name").unwrap_or_default();
                match &wanted {
                    Some(wanted) => wanted.contains(&name),
                    None => !header_parts.contains(&name),
                }
            })
            .collect();
        let is_bare = !self.is_rpc && parts.len() > 1;
        let body = match self.is_rpc {
            true => Some(self.rpc((document, message), &parts, body, way)?),
            false => self.document((document, message), &parts)?,
        };
        Ok(MessageShape {
            body,
            is_bare,
            headers,
        })
    }

    fn refuse_encoded(&self, node: &Element) -> Result<(), Problem> {
        match node.attribute("use") {
            Some("encoded") => {
                let message = "`use=\"encoded\"` is not supported";
                Err(Problem::new(&self.place(node), message)
                    .hint("WS-I Basic Profile rules it out: ask the service for document/literal"))
            }
            _ => Ok(()),
        }
    }

    /// The element of a named part.
    fn part_element(
        &mut self,
        (document, message): (&'a Document, &'a Element),
        part: &str,
        by: &Element,
    ) -> Result<ElementUse, Problem> {
        let mut parts = message.children.iter();
        let found = parts.find(|it| it.is(WSDL, "part") && it.attribute("name") == Some(part));
        let Some(found) = found else {
            let message = format!("the message has no part `{}`", part.escape_debug());
            return Err(Problem::new(&self.place(by), message));
        };
        let place = document.place(found);
        match found.attribute("element") {
            Some(element) => {
                let name = QName::read(element, found, &document.file)?;
                self.compiler.element(&name, &place)
            }
            None => Err(Problem::new(&place, "the part names no element")
                .hint("the body of `document` style is an element (WS-I Basic Profile, R2204)")),
        }
    }

    /// What a part of a header or fault is. One with a type, which WS-I Basic Profile rules out
    /// (R2205), is an element of the part's name, as tools of that time write it.
    fn part_or_type(
        &mut self,
        (document, message): (&'a Document, &'a Element),
        (part, namespace): (&str, Option<&str>),
        by: &Element,
    ) -> Result<ElementUse, Problem> {
        let mut parts = message.children.iter();
        let found = parts.find(|it| it.is(WSDL, "part") && it.attribute("name") == Some(part));
        let typed = found.filter(|it| it.attribute("element").is_none());
        match typed.and_then(|it| Some((it, it.attribute("type")?))) {
            Some((found, ty)) => self.typed_part((document, found), ty, namespace),
            None => self.part_element((document, message), part, by),
        }
    }

    /// The element that a part with a type is.
    fn typed_part(
        &mut self,
        (document, part): (&'a Document, &'a Element),
        ty: &str,
        namespace: Option<&str>,
    ) -> Result<ElementUse, Problem> {
        let place = document.place(part);
        let ty = QName::read(ty, part, &document.file)?;
        let name = QName::new(namespace, part.attribute("name").unwrap_or_default());
        check_name(&name, &place)?;
        Ok(ElementUse {
            name,
            ty: self.compiler.named_type(&ty, &place)?,
            is_nillable: false,
            default: None,
            fixed: None,
            is_abstract: false,
        })
    }

    /// The body of `document` style: one element, or an element for each part.
    fn document(
        &mut self,
        (document, message): (&'a Document, &'a Element),
        parts: &[&'a Element],
    ) -> Result<Option<ElementUse>, Problem> {
        match parts {
            [] => Ok(None),
            [only] => {
                let part = only.attribute("name").unwrap_or_default();
                self.part_element((document, message), part, only).map(Some)
            }
            parts => {
                // WS-I Basic Profile rules it out (R2201); services have it all the same.
                let mut elements = Vec::new();
                for part in parts {
                    let name = part.attribute("name").unwrap_or_default();
                    elements.push(self.part_element((document, message), name, part)?);
                }
                let name = elements.first().map(|it| it.name.clone());
                let elements = elements.into_iter().map(Term::Element).map(once);
                let term = Term::Sequence(elements.collect());
                let ty = self.wrapper(once(term), &document.place(message))?;
                Ok(name.map(|name| wrapping(name, ty)))
            }
        }
    }

    /// The type of an element around others.
    fn wrapper(&mut self, particle: Particle, place: &Place) -> Result<TypeId, Problem> {
        let complex = Complex {
            content: self.compiler.content(Made::Elements(particle), place)?,
            ..Complex::default()
        };
        Ok(self.compiler.add(Type::Complex(complex)))
    }

    /// The body of `rpc` style: an element for each part, wrapped in the operation's name.
    fn rpc(
        &mut self,
        (document, message): (&'a Document, &'a Element),
        parts: &[&'a Element],
        body: Option<&Element>,
        way: Way,
    ) -> Result<ElementUse, Problem> {
        let mut particles = Vec::new();
        for part in parts {
            let place = document.place(part);
            let element = match (part.attribute("type"), part.attribute("element")) {
                (Some(ty), _) => self.typed_part((document, part), ty, None)?,
                // WS-I Basic Profile rules it out (R2203): the element takes the accessor's place.
                (None, Some(element)) => {
                    let name = QName::read(element, part, &document.file)?;
                    self.compiler.element(&name, &place)?
                }
                (None, None) => {
                    let message =
                        "the part of an `rpc` message names neither a type nor an element";
                    return Err(Problem::new(&place, message));
                }
            };
            particles.push(once(Term::Element(element)));
        }
        let place = document.place(message);
        let ty = self.wrapper(once(Term::All(particles)), &place)?;
        let name = match way {
            Way::In => self.name.to_owned(),
            Way::Out => format!("{}Response", self.name),
        };
        let namespace = body.and_then(|it| it.attribute("namespace"));
        check_name(&QName::new(None, &name), &place)?;
        Ok(wrapping(QName::new(namespace, &name), ty))
    }

    fn faults(
        &mut self,
        (document, operation): (&'a Document, &'a Element),
    ) -> Result<Vec<FaultShape>, Problem> {
        let mut faults = Vec::new();
        for fault in operation.children.iter().filter(|it| it.is(WSDL, "fault")) {
            let name = fault.attribute("name").unwrap_or_default();
            let message = fault.attribute("message").unwrap_or_default();
            let (its_document, message) = self.wsdl.named("message", message, (document, fault))?;
            let mut parts = message.children.iter().filter(|it| it.is(WSDL, "part"));
            let Some(part) = parts.next() else {
                let message = "the message of a fault has no part";
                return Err(Problem::new(&its_document.place(fault), message));
            };
            let part_name = part.attribute("name").unwrap_or_default();
            let element = self.part_or_type((its_document, message), (part_name, None), part)?;
            faults.push(FaultShape {
                name: name.into(),
                element,
            });
        }
        Ok(faults)
    }
}

/// An element around others.
fn wrapping(name: QName, ty: TypeId) -> ElementUse {
    ElementUse {
        name,
        ty,
        is_nillable: false,
        default: None,
        fixed: None,
        is_abstract: false,
    }
}
