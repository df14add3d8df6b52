//! JSON to XML in one pass: a start tag is written as soon as its name is known, and what turns
//! out later to belong into it (attributes behind children, the root around several members) is
//! put in once, when the element ends.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::error::{ConvertError, ConvertErrorKind, Reason};
use super::json_text::{JsonText, Place};
use super::locate::json_path;
use super::name::{is_name, is_plain_name};
use super::xml_notes::XML;
use crate::jq::is_stopped;
use crate::stop::STEP;

/// Which element is around the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// `<root>` where XML needs one element: around several members, and around an array.
    #[default]
    Auto,
    /// This element, always.
    Named(String),
}

/// How JSON becomes XML.
#[derive(Clone, Debug)]
pub struct JsonToXml {
    /// Which element is around the result.
    pub root: Root,
    /// The name of the element that [`Root::Auto`] makes.
    pub root_name: String,
    /// The element for the entries of an array in an array or at the top.
    pub item: String,
    /// What the names of members begin with that are attributes.
    pub attribute_prefix: String,
    /// The name of the member that is the text of its element.
    pub text_key: String,
    /// The most objects and arrays within each other; at most 512 count.
    pub depth_max: usize,
    /// Whether the result begins with an XML declaration.
    pub declaration: bool,
    /// The most bytes of the result.
    pub output_max: usize,
}

impl Default for JsonToXml {
    fn default() -> Self {
        Self {
            root: Root::Auto,
            root_name: "root".to_owned(),
            item: "item".to_owned(),
            attribute_prefix: "@".to_owned(),
            text_key: "#content".to_owned(),
            depth_max: 128,
            declaration: false,
            output_max: 64 * 1024 * 1024,
        }
    }
}

/// The deepest nesting that the converter's own recursion is made for.
const DEPTH_LIMIT: usize = 512;

impl JsonToXml {
    /// Appends the XML of a JSON text.
    ///
    /// # Errors
    /// When the text is not JSON, says what XML cannot, or passes a limit; `out` is as it was.
    pub fn convert(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let start = out.len();
        self.write(json, out).map_err(|reason| {
            out.truncate(start);
            reason.located(|offset| json_path(json, offset))
        })
    }

    fn write(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
        let text = JsonText::new(json)?;
        // Names stand twice in XML: this is what most results need.
        out.reserve(json.len() * 5 / 2 + 128);
        if self.declaration {
            out.extend_from_slice(b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
        }
        let start = out.len();
        let mut writer = Writer {
            options: self,
            text,
            out,
            start,
            end_max: start.saturating_add(self.output_max),
            next_read: STEP,
            next_size: start.saturating_add(self.output_max.min(STEP)),
            depth: 0,
        };
        writer.top()?;
        writer.text.skip_space();
        if writer.text.at < json.len() {
            return Err(Reason::syntax(
                writer.text.at,
                "something follows the value",
            ));
        }
        writer.check_size()
    }
}

struct Writer<'a> {
    options: &'a JsonToXml,
    text: JsonText<'a>,
    out: &'a mut Vec<u8>,
    /// Where the result begins in `out`.
    start: usize,
    /// Where it must have ended in `out`.
    end_max: usize,
    /// How far it may read, and how long the result may be, before it looks whether to go on: one
    /// may be far more than the other.
    next_read: usize,
    next_size: usize,
    depth: usize,
}

/// What is known of an element while its members are read.
#[derive(Default)]
struct Frame<'a> {
    /// Where the inside of the start tag ends in `out`: late attributes are put there.
    tag_end: usize,
    /// Whether the start tag has been closed, so that attributes are late.
    has_content: bool,
    late: Vec<u8>,
    /// Names of attributes; only checked against each other.
    attributes: BTreeSet<Cow<'a, str>>,
    /// Prefixes that are declared here.
    declared: BTreeSet<String>,
    /// Prefixes that are used here or within and not declared within, with a place of each.
    wanted: BTreeMap<String, usize>,
    members: usize,
    /// Whether the last member was an array.
    is_array: bool,
}

impl<'a> Writer<'a> {
    /// The value at the top: only here an element around it may be missing or come later.
    fn top(&mut self) -> Result<(), Reason> {
        self.text.skip_space();
        let begin = self.text.at;
        // The top's content is written bare; a root is put around it at the end if need be.
        let mut frame = Frame {
            has_content: true,
            ..Frame::default()
        };
        let mut needs_root = false;
        match self.text.peek() {
            Some(b'{') => {
                self.members(&mut frame)?;
                let attributes = frame.attributes.len();
                if attributes > 0 && frame.members == attributes && self.is_auto() {
                    let detail = "attributes without an element to stand in";
                    return Err(Reason::unmappable(begin, detail));
                }
                needs_root = frame.members > 1 || frame.is_array;
            }
            Some(b'[') => {
                let options = self.options;
                self.array(&options.item, begin, &mut frame)?;
                needs_root = true;
            }
            _ => scalar(&mut self.text, Place::Text, self.out)?,
        }
        match &self.options.root {
            Root::Named(name) => self.surround(name, &frame.late),
            Root::Auto if needs_root => self.surround(&self.options.root_name, &frame.late),
            Root::Auto => {}
        }
        match frame
            .wanted
            .iter()
            .find(|(prefix, _)| !frame.declared.contains(*prefix))
        {
            Some((_, offset)) => Err(Reason::unmappable(
                *offset,
                "a namespace prefix that is not declared",
            )),
            None => Ok(()),
        }
    }

    fn is_auto(&self) -> bool {
        self.options.root == Root::Auto
    }

    /// Puts an element around everything.
    fn surround(&mut self, name: &str, attributes: &[u8]) {
        let mut tag = Vec::with_capacity(name.len() + attributes.len() + 3);
        tag.push(b'<');
        tag.extend_from_slice(name.as_bytes());
        tag.extend_from_slice(attributes);
        if self.out.len() == self.start {
            tag.extend_from_slice(b"/>");
            self.out.extend_from_slice(&tag);
            return;
        }
        tag.push(b'>');
        insert(self.out, self.start, &tag);
        self.out.extend_from_slice(b"</");
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'>');
    }

    fn enter(&mut self) -> Result<(), Reason> {
        self.depth += 1;
        if self.depth > self.options.depth_max.min(DEPTH_LIMIT) {
            let detail = "too many levels within each other";
            return Err(Reason::new(ConvertErrorKind::TooDeep, self.text.at, detail));
        }
        self.check_size()
    }

    /// Asked for each entry of an array and each member, so it is cheap.
    #[inline]
    fn check_size(&mut self) -> Result<(), Reason> {
        match self.out.len() > self.next_size || self.text.at > self.next_read {
            true => self.look(),
            false => Ok(()),
        }
    }

    /// Whether the result may be longer than this, and somebody still waits for it.
    #[cold]
    fn look(&mut self) -> Result<(), Reason> {
        let (at, size) = (self.text.at, self.out.len());
        if size > self.end_max {
            let detail = "the result is too large";
            return Err(Reason::new(ConvertErrorKind::TooLarge, at, detail));
        }
        if is_stopped() {
            return Err(Reason::stopped(at));
        }
        self.next_read = at.saturating_add(STEP);
        self.next_size = self.end_max.min(size.saturating_add(STEP));
        Ok(())
    }

    /// The members of an object, whose brace is the next byte.
    fn members(&mut self, frame: &mut Frame<'a>) -> Result<(), Reason> {
        self.enter()?;
        self.text.at += 1;
        if !self.text.take(b'}') {
            loop {
                self.member(frame)?;
                if self.text.take(b',') {
                    continue;
                }
                self.text.require(b'}', "`,` or `}` was expected")?;
                break;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn member(&mut self, frame: &mut Frame<'a>) -> Result<(), Reason> {
        self.check_size()?;
        self.text.skip_space();
        let key_at = self.text.at;
        let key = self.key()?;
        self.text.require(b':', "`:` was expected")?;
        self.text.skip_space();
        frame.members += 1;
        frame.is_array = false;
        let options = self.options;
        if key.starts_with(options.attribute_prefix.as_str()) {
            return self.attribute(key, key_at, frame);
        }
        if *key == options.text_key {
            if matches!(self.text.peek(), Some(b'{' | b'[')) {
                let detail = "the text of an element is an object or array";
                return Err(Reason::unmappable(key_at, detail));
            }
            self.open(frame);
            return scalar(&mut self.text, Place::Text, self.out);
        }
        if !is_plain_name(&key) && !is_name(&key) {
            return Err(Reason::unmappable(key_at, "a name that XML does not allow"));
        }
        if self.text.peek() == Some(b'[') {
            frame.is_array = true;
            return self.array(&key, key_at, frame);
        }
        self.open(frame);
        self.element(&key, key_at, frame)
    }

    /// A member's name, without the white space around it.
    #[inline]
    fn key(&mut self) -> Result<Cow<'a, str>, Reason> {
        if self.text.peek() != Some(b'"') {
            return Err(Reason::syntax(self.text.at, "a member name was expected"));
        }
        let rest = self.text.bytes.get(self.text.at + 1..).unwrap_or_default();
        let plain = rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\' | ..b' '));
        match plain {
            Some(length) if rest.get(length) == Some(&b'"') => {
                self.text.at += length + 2;
                let key = rest.get(..length).unwrap_or_default();
                // The whole text has been found to be UTF-8, and quotes end characters.
                let key = std::str::from_utf8(key).unwrap_or_default();
                Ok(Cow::Borrowed(key.trim()))
            }
            _ => {
                let key = self.text.string()?;
                Ok(Cow::Owned(key.trim().to_owned()))
            }
        }
    }

    /// Closes the start tag that the frame's content stands behind.
    #[inline]
    fn open(&mut self, frame: &mut Frame<'a>) {
        if !frame.has_content {
            self.out.push(b'>');
            frame.has_content = true;
        }
    }

    /// The entries of an array, whose bracket is the next byte, as elements of one name.
    fn array(&mut self, name: &str, name_at: usize, parent: &mut Frame<'a>) -> Result<(), Reason> {
        self.enter()?;
        self.text.at += 1;
        if !self.text.take(b']') {
            self.open(parent);
            // Made once: most arrays have many entries, and most entries are text.
            let mut is_noted = false;
            let (start_tag, end_tag) = (format!("<{name}>"), format!("</{name}>"));
            loop {
                // The name is written for each entry: what comes of it is longer than what is read.
                self.check_size()?;
                self.text.skip_space();
                match self.text.peek() {
                    Some(b'{' | b'[') => self.element(name, name_at, parent)?,
                    _ => {
                        if !is_noted {
                            want_prefix(name, name_at, parent);
                            is_noted = true;
                        }
                        self.out.extend_from_slice(start_tag.as_bytes());
                        if self.leaf()? {
                            self.out.extend_from_slice(end_tag.as_bytes());
                        }
                    }
                }
                if self.text.take(b',') {
                    continue;
                }
                self.text.require(b']', "`,` or `]` was expected")?;
                break;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// The next value as an element.
    fn element(
        &mut self,
        name: &str,
        name_at: usize,
        parent: &mut Frame<'a>,
    ) -> Result<(), Reason> {
        self.out.push(b'<');
        self.out.extend_from_slice(name.as_bytes());
        let mut frame = match self.text.peek() {
            Some(b'{' | b'[') => Frame {
                tag_end: self.out.len(),
                ..Frame::default()
            },
            _ => {
                want_prefix(name, name_at, parent);
                self.out.push(b'>');
                if self.leaf()? {
                    self.end_tag(name);
                }
                return Ok(());
            }
        };
        if self.text.peek() == Some(b'{') {
            self.members(&mut frame)?;
        } else {
            let options = self.options;
            self.array(&options.item, self.text.at, &mut frame)?;
        }
        want_prefix(name, name_at, &mut frame);
        self.close(name, &mut frame);
        for (prefix, offset) in frame.wanted {
            if !frame.declared.contains(&prefix) {
                parent.wanted.entry(prefix).or_insert(offset);
            }
        }
        Ok(())
    }

    /// The text of an element that has nothing else. False when there is none: then the start tag,
    /// which has been written, is made an empty element's.
    #[inline]
    fn leaf(&mut self) -> Result<bool, Reason> {
        let before = self.out.len();
        scalar(&mut self.text, Place::Text, self.out)?;
        let has_text = self.out.len() > before;
        if !has_text {
            self.out.truncate(before - 1);
            self.out.extend_from_slice(b"/>");
        }
        Ok(has_text)
    }

    fn close(&mut self, name: &str, frame: &mut Frame<'a>) {
        if !frame.has_content {
            self.out.extend_from_slice(b"/>");
            return;
        }
        if !frame.late.is_empty() {
            insert(self.out, frame.tag_end, &frame.late);
        }
        self.end_tag(name);
    }

    #[inline]
    fn end_tag(&mut self, name: &str) {
        self.out.extend_from_slice(b"</");
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'>');
    }

    /// A member that is an attribute of the frame's element.
    fn attribute(
        &mut self,
        key: Cow<'a, str>,
        key_at: usize,
        frame: &mut Frame<'a>,
    ) -> Result<(), Reason> {
        let name = key
            .get(self.options.attribute_prefix.len()..)
            .unwrap_or_default()
            .to_owned();
        if matches!(self.text.peek(), Some(b'{' | b'[')) {
            return Err(Reason::unmappable(
                key_at,
                "an attribute holds an object or array",
            ));
        }
        if !is_name(&name) {
            return Err(Reason::unmappable(key_at, "a name that XML does not allow"));
        }
        let target = if frame.has_content {
            &mut frame.late
        } else {
            &mut *self.out
        };
        target.push(b' ');
        target.extend_from_slice(name.as_bytes());
        target.extend_from_slice(b"=\"");
        let value_at = target.len();
        scalar(&mut self.text, Place::Attribute, target)?;
        let is_empty = target.len() == value_at;
        let is_xml = target.get(value_at..) == Some(XML.as_bytes());
        target.push(b'"');
        if !frame.has_content {
            frame.tag_end = self.out.len();
        }
        match name.split_once(':') {
            Some(("xmlns", prefix)) => {
                if is_empty || prefix == "xmlns" || (prefix == "xml") != is_xml {
                    let detail = "a namespace prefix that cannot be declared like this";
                    return Err(Reason::unmappable(key_at, detail));
                }
                frame.declared.insert(prefix.to_owned());
            }
            _ => want_prefix(&name, key_at, frame),
        }
        if !frame.attributes.insert(Cow::Owned(name)) {
            return Err(Reason::unmappable(key_at, "an attribute stands twice"));
        }
        Ok(())
    }
}

/// Writes a string, number or boolean; nothing for null.
#[inline]
fn scalar(text: &mut JsonText<'_>, place: Place, out: &mut Vec<u8>) -> Result<(), Reason> {
    match text.peek() {
        Some(b'"') => return text.string_to_xml(place, out),
        Some(b'-' | b'0'..=b'9') => out.extend_from_slice(text.number()?),
        Some(b't') => out.extend_from_slice(text.word(b"true")?),
        Some(b'f') => out.extend_from_slice(text.word(b"false")?),
        _ => drop(text.word(b"null")?),
    }
    Ok(())
}

/// Notes that a prefix is used; `xml` needs no declaration.
#[inline]
fn want_prefix(name: &str, offset: usize, frame: &mut Frame<'_>) {
    // A plain search of a short name is faster than the machinery of `split_once`.
    if !name.as_bytes().contains(&b':') {
        return;
    }
    if let Some((prefix, _)) = name.split_once(':')
        && prefix != "xml"
    {
        frame.wanted.entry(prefix.to_owned()).or_insert(offset);
    }
}

fn insert(out: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    out.splice(at..at, bytes.iter().copied());
}
