//! Reads XML into notes: which elements there are, in the order of the document, and what stands
//! in each. Checks everything that makes a document well-formed and that the reader does not.

use std::collections::HashMap;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::error::{ConvertErrorKind, Reason};
use super::name::is_name;
use super::xml_text::{attribute_value, line_ends, reference};
use crate::stop::StopCheck;

/// An element.
#[derive(Debug)]
pub(crate) struct Element<'a> {
    pub name: &'a str,
    /// Where its start tag begins, in bytes.
    pub offset: usize,
    /// The attributes, in order.
    pub attributes: Vec<(String, String)>,
    /// All text directly within, without white space between elements.
    pub text: String,
    /// The first element within, and the next one beside it, by number.
    pub first_child: Option<usize>,
    pub next_sibling: Option<usize>,
    last_child: Option<usize>,
}

/// Reads a document. The root is element 0.
pub(crate) fn read(xml: &str, depth_max: usize) -> Result<Vec<Element<'_>>, Reason> {
    let mut reader = Reader::from_str(xml);
    let config = reader.config_mut();
    config.check_comments = true;
    config.check_end_names = true;
    let mut notes = Notes {
        xml,
        elements: Vec::new(),
        open: Vec::new(),
        pending: String::new(),
        depth_max,
        prefixes: HashMap::new(),
        declared: Vec::new(),
    };
    let mut stop = StopCheck::new(0);
    loop {
        let offset = reader.buffer_position() as usize;
        if stop.is_stopped(offset) {
            return Err(Reason::stopped(offset));
        }
        let event = reader.read_event().map_err(|_| {
            let offset = reader.error_position() as usize;
            Reason::syntax(offset, "the text is not well-formed XML")
        })?;
        if matches!(event, Event::Eof) {
            break;
        }
        notes.take(event, offset)?;
    }
    if !notes.open.is_empty() {
        return Err(Reason::syntax(xml.len(), "an element has no end tag"));
    }
    if notes.elements.is_empty() {
        return Err(Reason::syntax(xml.len(), "there is no element"));
    }
    Ok(notes.elements)
}

struct Notes<'a> {
    xml: &'a str,
    elements: Vec<Element<'a>>,
    /// The elements that have not ended.
    open: Vec<usize>,
    /// Text since the last tag.
    pending: String,
    depth_max: usize,
    /// How many open elements declare each prefix.
    prefixes: HashMap<String, usize>,
    /// Those prefixes, each with the number of its element.
    declared: Vec<(usize, String)>,
}

/// The namespace of the prefix `xml`, which may be declared and need not be.
pub(super) const XML: &str = "http://www.w3.org/XML/1998/namespace";

impl<'a> Notes<'a> {
    fn take(&mut self, event: Event<'a>, offset: usize) -> Result<(), Reason> {
        match event {
            Event::Start(tag) => self.start(&tag, offset),
            Event::Empty(tag) => {
                self.start(&tag, offset)?;
                self.end();
                Ok(())
            }
            Event::End(_) => {
                self.end();
                Ok(())
            }
            Event::Text(text) => {
                let text: &str = &text;
                if text.contains("]]>") {
                    return Err(Reason::syntax(offset, "`]]>` in text"));
                }
                self.text(text, offset)
            }
            Event::CData(text) => {
                let text: &str = &text;
                if self.open.is_empty() {
                    return Err(Reason::syntax(offset, "text outside the root element"));
                }
                line_ends(text, &mut self.pending);
                Ok(())
            }
            Event::GeneralRef(name) => {
                if self.open.is_empty() {
                    return Err(Reason::syntax(offset, "text outside the root element"));
                }
                self.pending.push(reference(&name, offset)?);
                Ok(())
            }
            Event::DocType(_) => {
                let detail = "a document type declaration, which is not allowed";
                Err(Reason::new(ConvertErrorKind::Forbidden, offset, detail))
            }
            Event::Decl(declaration) => match declaration.encoding() {
                _ if offset > 0 => Err(Reason::syntax(offset, "the XML declaration is not first")),
                None => Ok(()),
                Some(Ok(name))
                    if name.eq_ignore_ascii_case("utf-8")
                        || name.eq_ignore_ascii_case("us-ascii") =>
                {
                    Ok(())
                }
                Some(name) => {
                    let detail = other_encoding(name.as_deref().unwrap_or_default());
                    Err(Reason::syntax(offset, detail))
                }
            },
            Event::PI(instruction) if instruction.target().eq_ignore_ascii_case("xml") => {
                Err(Reason::syntax(offset, "the XML declaration is not first"))
            }
            Event::PI(_) | Event::Comment(_) | Event::Eof => Ok(()),
        }
    }

    fn text(&mut self, text: &str, offset: usize) -> Result<(), Reason> {
        if self.open.is_empty() {
            let is_space = text.bytes().all(|byte| byte.is_ascii_whitespace());
            return if is_space {
                Ok(())
            } else {
                Err(Reason::syntax(offset, "text outside the root element"))
            };
        }
        line_ends(text, &mut self.pending);
        Ok(())
    }

    fn start(&mut self, tag: &BytesStart<'a>, offset: usize) -> Result<(), Reason> {
        if self.open.is_empty() && !self.elements.is_empty() {
            return Err(Reason::syntax(offset, "a second root element"));
        }
        if self.open.len() >= self.depth_max {
            let detail = "too many levels within each other";
            return Err(Reason::new(ConvertErrorKind::TooDeep, offset, detail));
        }
        self.flush(true);
        // Behind the `<` in the document itself, which outlives the event.
        let name = self
            .xml
            .get(offset + 1..offset + 1 + tag.name().as_ref().len());
        let name = name.unwrap_or_default();
        if !is_name(name) {
            return Err(Reason::syntax(offset, "an element's name is not one"));
        }
        let number = self.elements.len();
        if let Some(parent) = self.open.last().copied() {
            let last = self
                .elements
                .get(parent)
                .and_then(|parent| parent.last_child);
            if let Some(last) = last.and_then(|last| self.elements.get_mut(last)) {
                last.next_sibling = Some(number);
            }
            if let Some(parent) = self.elements.get_mut(parent) {
                parent.first_child.get_or_insert(number);
                parent.last_child = Some(number);
            }
        }
        let attributes = read_attributes(tag, offset)?;
        self.declare(number, &attributes, offset)?;
        let names = attributes.iter().map(|(name, _)| name.as_str());
        for name in std::iter::once(name).chain(names) {
            self.check_prefix(name, offset)?;
        }
        self.elements.push(Element {
            name,
            offset,
            attributes,
            text: String::new(),
            first_child: None,
            next_sibling: None,
            last_child: None,
        });
        self.open.push(number);
        Ok(())
    }

    fn end(&mut self) {
        let is_between = self
            .current()
            .is_some_and(|element| element.first_child.is_some());
        self.flush(is_between);
        let number = self.open.pop();
        while let Some((_, prefix)) = self.declared.pop_if(|(by, _)| Some(*by) == number) {
            if let Some(count) = self.prefixes.get_mut(&prefix) {
                *count -= 1;
            }
        }
    }

    /// Notes the prefixes that an element declares (Namespaces in XML 1.0, sections 2.2 and 3).
    fn declare(
        &mut self,
        number: usize,
        attributes: &[(String, String)],
        offset: usize,
    ) -> Result<(), Reason> {
        for (name, value) in attributes {
            let Some(prefix) = name.strip_prefix("xmlns:") else {
                continue;
            };
            let is_xml = prefix == "xml";
            if value.is_empty() || prefix == "xmlns" || is_xml != (value == XML) {
                let detail = "a namespace that cannot be declared so";
                return Err(Reason::syntax(offset, detail));
            }
            *self.prefixes.entry(prefix.to_owned()).or_default() += 1;
            self.declared.push((number, prefix.to_owned()));
        }
        Ok(())
    }

    fn check_prefix(&self, name: &str, offset: usize) -> Result<(), Reason> {
        // Most names are short and have no prefix.
        if !name.as_bytes().contains(&b':') {
            return Ok(());
        }
        let prefix = name.split(':').next().unwrap_or_default();
        let is_declared = self.prefixes.get(prefix).is_some_and(|count| *count > 0);
        match is_declared || matches!(prefix, "xml" | "xmlns") {
            true => Ok(()),
            false => Err(Reason::syntax(offset, "a prefix that is not declared")),
        }
    }

    fn current(&mut self) -> Option<&mut Element<'a>> {
        let number = self.open.last().copied()?;
        self.elements.get_mut(number)
    }

    /// Gives the text since the last tag to its element. Between elements, white space alone is
    /// only layout.
    fn flush(&mut self, is_between: bool) {
        let text = std::mem::take(&mut self.pending);
        let is_space = text.bytes().all(|byte| byte.is_ascii_whitespace());
        if is_space && is_between {
            return;
        }
        if let Some(element) = self.current() {
            element.text.push_str(&text);
        }
    }
}

/// What is wrong with an encoding that is declared.
fn other_encoding(name: &str) -> &'static str {
    const LATIN1: [&str; 3] = ["iso-8859-1", "latin1", "l1"];
    let is_one_of = |names: &[&str]| names.iter().any(|it| it.eq_ignore_ascii_case(name));
    if is_one_of(&LATIN1) {
        "the document is in ISO-8859-1, and only UTF-8 is read"
    } else if is_one_of(&["windows-1252", "cp1252"]) {
        "the document is in windows-1252, and only UTF-8 is read"
    } else if is_one_of(&["utf-16", "utf-16le", "utf-16be"]) {
        "the document declares UTF-16, and only UTF-8 is read"
    } else {
        "the document declares an encoding other than UTF-8"
    }
}

fn read_attributes(tag: &BytesStart<'_>, offset: usize) -> Result<Vec<(String, String)>, Reason> {
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|_| {
            Reason::syntax(offset, "an attribute that is malformed or stands twice")
        })?;
        let name: &str = attribute.key.as_ref();
        let place = (name.as_ptr() as usize).wrapping_sub(tag.as_ptr() as usize);
        let before = place
            .checked_sub(1)
            .and_then(|place| tag.as_bytes().get(place));
        if !is_name(name) || !before.is_some_and(u8::is_ascii_whitespace) {
            return Err(Reason::syntax(offset, "an attribute's name is not one"));
        }
        attributes.push((name.to_owned(), attribute_value(&attribute.value, offset)?));
    }
    Ok(attributes)
}
