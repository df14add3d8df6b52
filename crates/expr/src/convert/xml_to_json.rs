//! XML to JSON, from notes about the document's elements.

use std::collections::HashMap;

use super::error::{ConvertError, ConvertErrorKind, Reason};
use super::xml_notes::{Element, read};
use super::xml_text::{check_characters, write_string};
use crate::stop::StopCheck;

/// What becomes of the root element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XmlRoot {
    /// It is the one member of the result.
    #[default]
    Keep,
    /// Its content is the result.
    Drop,
}

/// How XML becomes JSON.
#[derive(Clone, Debug)]
pub struct XmlToJson {
    /// What becomes of the root element.
    pub root: XmlRoot,
    /// What the names of members begin with that are attributes.
    pub attribute_prefix: String,
    /// The name of the member that is text beside attributes or elements.
    pub text_key: String,
    /// The most elements within each other; at most 512 count.
    pub depth_max: usize,
    /// The most bytes of the result.
    pub output_max: usize,
    /// Names of elements that become arrays even where they stand once.
    pub arrays: Vec<String>,
    /// Whether text that is a JSON number or boolean becomes one.
    pub numbers: bool,
}

impl Default for XmlToJson {
    fn default() -> Self {
        Self {
            root: XmlRoot::Keep,
            attribute_prefix: "@".to_owned(),
            text_key: "#content".to_owned(),
            depth_max: 128,
            output_max: 64 * 1024 * 1024,
            arrays: Vec::new(),
            numbers: false,
        }
    }
}

/// The deepest nesting that the converter's own recursion is made for.
const DEPTH_LIMIT: usize = 512;

impl XmlToJson {
    /// Appends the JSON of an XML document.
    ///
    /// # Errors
    /// When the document is not well-formed, declares or uses entities, or passes a limit; `out`
    /// is as it was.
    pub fn convert(&self, xml: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let start = out.len();
        self.write(xml, out).map_err(|reason| {
            out.truncate(start);
            reason.located(|offset| xml_path(xml, offset))
        })
    }

    fn write(&self, xml: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
        let text = check_characters(xml)?;
        let elements = read(text, self.depth_max.min(DEPTH_LIMIT))?;
        let limit = out.len().saturating_add(self.output_max);
        let mut writer = Writer {
            options: self,
            elements: &elements,
            stop: StopCheck::new(out.len()),
            out,
            limit,
        };
        let Some(root) = elements.first() else {
            return Ok(());
        };
        match self.root {
            XmlRoot::Drop => writer.value(root),
            XmlRoot::Keep => {
                writer.out.push(b'{');
                writer.member(root.name, &[root])?;
                writer.out.push(b'}');
                Ok(())
            }
        }
    }
}

/// Elements of one name.
type Group<'a> = (&'a str, Vec<&'a Element<'a>>);

struct Writer<'a> {
    options: &'a XmlToJson,
    elements: &'a [Element<'a>],
    out: &'a mut Vec<u8>,
    limit: usize,
    stop: StopCheck,
}

impl<'a> Writer<'a> {
    /// The elements of one name as one member.
    fn member(&mut self, name: &str, elements: &[&'a Element<'a>]) -> Result<(), Reason> {
        write_string(name, self.out);
        self.out.push(b':');
        let is_array = elements.len() > 1 || self.options.arrays.iter().any(|it| it == name);
        if is_array {
            self.out.push(b'[');
        }
        for (at, element) in elements.iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.value(element)?;
        }
        if is_array {
            self.out.push(b']');
        }
        Ok(())
    }

    fn value(&mut self, element: &'a Element<'a>) -> Result<(), Reason> {
        if self.out.len() > self.limit {
            let detail = "the result is too large";
            return Err(Reason::new(ConvertErrorKind::TooLarge, 0, detail));
        }
        if self.stop.is_stopped(self.out.len()) {
            return Err(Reason::stopped(element.offset));
        }
        if element.attributes.is_empty() && element.first_child.is_none() {
            self.text(&element.text);
            return Ok(());
        }
        self.out.push(b'{');
        let mut is_first = true;
        for (name, value) in &element.attributes {
            self.comma(&mut is_first);
            write_string(
                &format!("{}{name}", self.options.attribute_prefix),
                self.out,
            );
            self.out.push(b':');
            self.text_or(value, b"\"\"");
        }
        for (name, group) in self.groups(element)? {
            self.comma(&mut is_first);
            self.member(name, &group)?;
        }
        if !element.text.is_empty() {
            self.comma(&mut is_first);
            write_string(&self.options.text_key, self.out);
            self.out.push(b':');
            self.text(&element.text);
        }
        self.out.push(b'}');
        Ok(())
    }

    fn comma(&mut self, is_first: &mut bool) {
        if !*is_first {
            self.out.push(b',');
        }
        *is_first = false;
    }

    /// The elements within, those of one name together at the place of the first.
    fn groups(&self, element: &Element<'a>) -> Result<Vec<Group<'a>>, Reason> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut stop = StopCheck::new(element.offset);
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut next = element.first_child;
        while let Some(child) = next.and_then(|number| self.elements.get(number)) {
            next = child.next_sibling;
            if stop.is_stopped(child.offset) {
                return Err(Reason::stopped(child.offset));
            }
            let place = *places.entry(child.name).or_insert_with(|| {
                groups.push((child.name, Vec::new()));
                groups.len() - 1
            });
            if let Some((_, group)) = groups.get_mut(place) {
                group.push(child);
            }
        }
        Ok(groups)
    }

    /// Text as a value; no text is null, as null is an element without text.
    fn text(&mut self, text: &str) {
        self.text_or(text, b"null");
    }

    fn text_or(&mut self, text: &str, empty: &[u8]) {
        if text.is_empty() {
            self.out.extend_from_slice(empty);
        } else if self.options.numbers && is_bare(text) {
            self.out.extend_from_slice(text.as_bytes());
        } else {
            write_string(text, self.out);
        }
    }
}

/// Whether the text is a JSON number or boolean.
fn is_bare(text: &str) -> bool {
    if text == "true" || text == "false" {
        return true;
    }
    let Ok(mut json) = super::json_text::JsonText::new(text.as_bytes()) else {
        return false;
    };
    json.number().is_ok() && json.at == text.len()
}

/// The path of the element at an offset: `/lot/cars`. The text may be broken behind it.
fn xml_path(xml: &[u8], offset: usize) -> String {
    let text = String::from_utf8_lossy(xml.get(..offset.min(xml.len())).unwrap_or_default());
    let mut reader = quick_xml::Reader::from_str(&text);
    let mut path: Vec<String> = Vec::new();
    let mut stop = StopCheck::new(0);
    while !stop.is_stopped(reader.buffer_position() as usize) {
        match reader.read_event() {
            Ok(quick_xml::events::Event::Start(tag)) => {
                path.push(tag.name().as_ref().chars().take(100).collect());
            }
            Ok(quick_xml::events::Event::End(_)) => drop(path.pop()),
            Ok(quick_xml::events::Event::Eof) | Err(_) => break,
            Ok(_) => {}
        }
    }
    format!("/{}", path.join("/"))
}
