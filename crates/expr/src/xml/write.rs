//! Writes documents. Prefixes are the writer's own, one for each namespace.

use std::fmt;
use std::sync::Arc;

use super::{XML_NAMESPACE, XSI_NAMESPACE};
use crate::stop::{STOPPED, StopCheck};

/// Why something cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotXml {
    /// The document would be larger than it may.
    TooLarge,
    /// A character that XML does not have (XML 1.0, section 2.2).
    Character,
    /// Nobody waits for the document any more: see [`crate::jq::stoppable`].
    Stopped,
}

impl fmt::Display for NotXml {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TooLarge => "the document is too large",
            Self::Character => "a character that XML does not have",
            Self::Stopped => STOPPED,
        })
    }
}

impl std::error::Error for NotXml {}

/// A document, or a part of one, that is being written.
#[derive(Debug)]
pub struct Writer {
    text: String,
    namespaces: Vec<Arc<str>>,
    limit: usize,
    stop: StopCheck,
    /// Whether a start tag still takes attributes.
    is_open: bool,
}

impl Writer {
    /// An empty one of at most this many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            text: String::with_capacity(512),
            namespaces: Vec::new(),
            limit,
            stop: StopCheck::new(0),
            is_open: false,
        }
    }

    /// The prefix of a namespace, which is declared around everything.
    pub fn prefix(&mut self, namespace: &str) -> String {
        if namespace == XML_NAMESPACE {
            return "xml".to_owned();
        }
        let known = self.namespaces.iter().position(|it| **it == *namespace);
        let number = known.unwrap_or_else(|| {
            self.namespaces.push(namespace.into());
            self.namespaces.len() - 1
        });
        prefix(number, namespace)
    }

    fn name(&mut self, namespace: Option<&str>, name: &str) {
        if let Some(namespace) = namespace {
            let prefix = self.prefix(namespace);
            self.text.push_str(&prefix);
            self.text.push(':');
        }
        self.text.push_str(name);
    }

    fn close_tag(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.text.push('>');
        }
    }

    /// Begins an element. The name is one of XML.
    ///
    /// # Errors
    /// When the document is too large.
    pub fn start(&mut self, namespace: Option<&str>, name: &str) -> Result<(), NotXml> {
        self.close_tag();
        if self.text.len() > self.limit {
            return Err(NotXml::TooLarge);
        }
        if self.stop.is_stopped(self.text.len()) {
            return Err(NotXml::Stopped);
        }
        self.text.push('<');
        self.name(namespace, name);
        self.is_open = true;
        Ok(())
    }

    /// Adds an attribute to the element that has just begun.
    ///
    /// # Errors
    /// When the value has a character that XML does not have.
    pub fn attribute(
        &mut self,
        namespace: Option<&str>,
        name: &str,
        value: &str,
    ) -> Result<(), NotXml> {
        self.text.push(' ');
        self.name(namespace, name);
        self.text.push_str("=\"");
        escape(value, true, &mut self.text)?;
        self.text.push('"');
        Ok(())
    }

    /// Adds text.
    ///
    /// # Errors
    /// When it has a character that XML does not have, or the document is too large.
    pub fn text(&mut self, text: &str) -> Result<(), NotXml> {
        if text.is_empty() {
            return Ok(());
        }
        self.close_tag();
        if self.text.len().saturating_add(text.len()) > self.limit {
            return Err(NotXml::TooLarge);
        }
        escape(text, false, &mut self.text)
    }

    /// Ends the element of this name.
    pub fn end(&mut self, namespace: Option<&str>, name: &str) {
        if std::mem::take(&mut self.is_open) {
            self.text.push_str("/>");
            return;
        }
        self.text.push_str("</");
        self.name(namespace, name);
        self.text.push('>');
    }

    /// The whole document: what has been written, all namespaces declared at the first element.
    pub fn finish(self) -> String {
        let mut document = String::with_capacity(self.text.len() + 200);
        document.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let end = self.text.find([' ', '>', '/']).unwrap_or(self.text.len());
        let (tag, rest) = self.text.split_at_checked(end).unwrap_or((&self.text, ""));
        document.push_str(tag);
        for (number, namespace) in self.namespaces.iter().enumerate() {
            let prefix = prefix(number, namespace);
            document.push_str(&format!(" xmlns:{prefix}=\""));
            // A namespace with such a character has been refused where it was read.
            let _ = escape(namespace, true, &mut document);
            document.push('"');
        }
        document.push_str(rest);
        document
    }
}

fn prefix(number: usize, namespace: &str) -> String {
    match namespace {
        XSI_NAMESPACE => "xsi".to_owned(),
        _ => format!("n{number}"),
    }
}

/// Appends text with what XML reserves escaped (XML 1.0, sections 2.4 and 3.3.3).
fn escape(text: &str, is_attribute: bool, out: &mut String) -> Result<(), NotXml> {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#13;"),
            '"' if is_attribute => out.push_str("&quot;"),
            '\n' if is_attribute => out.push_str("&#10;"),
            '\t' if is_attribute => out.push_str("&#9;"),
            '\t' | '\n' => out.push(character),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => return Err(NotXml::Character),
            _ => out.push(character),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_what_a_reader_reads() {
        let mut writer = Writer::new(1000);
        writer.start(Some("u:a"), "a").unwrap();
        writer.attribute(Some("u:b"), "x", "<\"\n&").unwrap();
        writer.start(None, "b").unwrap();
        writer.end(None, "b");
        writer.text("1 < 2\r\n").unwrap();
        writer.end(Some("u:a"), "a");
        let text = writer.finish();
        let root = super::super::parse(text.as_bytes(), 9).unwrap();
        assert!(root.is("u:a", "a"), "{text}");
        assert_eq!(root.attribute_in("u:b", "x"), Some("<\"\n&"));
        assert_eq!(root.text, "1 < 2\r\n");
        assert_eq!(root.children.len(), 1);
    }

    #[test]
    fn what_xml_cannot_say_is_refused() {
        let mut writer = Writer::new(4);
        writer.start(None, "a").unwrap();
        assert_eq!(writer.text("\u{1}"), Err(NotXml::Character));
        assert_eq!(writer.text("long"), Err(NotXml::TooLarge));
    }
}
