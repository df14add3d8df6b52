//! Takes parts of a JSON text by their paths and copies them as they stand, without making values.

use bytes::Bytes;

use super::parse::{Fault, Reader, StringSpan};

/// What is written.
#[derive(Debug)]
pub(crate) enum Shape {
    /// The part at a path, by its number; null where there is none.
    Part(usize),
    /// Members, each name as JSON text.
    Object(Vec<(Vec<u8>, Shape)>),
    Array(Vec<Shape>),
    /// JSON text.
    Literal(Vec<u8>),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Name(Vec<u8>),
    Index(usize),
}

/// Paths that begin with the same steps share their nodes.
#[derive(Debug, Default)]
struct Node {
    children: Vec<(Key, usize)>,
    /// The part that ends here.
    part: Option<usize>,
}

/// Paths, and how what they lead to is put together.
#[derive(Debug)]
pub(crate) struct Projection {
    nodes: Vec<Node>,
    parts: usize,
    shape: Option<Shape>,
    /// How many levels the shape adds.
    pub depth: usize,
}

impl Default for Projection {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            parts: 0,
            shape: None,
            depth: 0,
        }
    }
}

/// Members of one copied object; more are left to the general way.
const MEMBERS_MAX: usize = 64;

impl Projection {
    /// The part at a path.
    pub fn part(&mut self, path: impl IntoIterator<Item = Key>) -> Shape {
        let mut at = 0;
        for key in path {
            let known = self.nodes.get(at).and_then(|node| {
                let known = node.children.iter().find(|(it, _)| *it == key);
                known.map(|(_, child)| *child)
            });
            at = known.unwrap_or_else(|| {
                let child = self.nodes.len();
                self.nodes.push(Node::default());
                if let Some(node) = self.nodes.get_mut(at) {
                    node.children.push((key, child));
                }
                child
            });
        }
        let next = self.parts;
        let part = match self.nodes.get_mut(at) {
            Some(node) => *node.part.get_or_insert(next),
            None => next,
        };
        self.parts += usize::from(part == next);
        Shape::Part(part)
    }

    /// None where one place is looked into by name and by number, which cannot both succeed.
    pub fn finish(mut self, shape: Shape, depth: usize) -> Option<Self> {
        let is_mixed = |node: &Node| {
            let is_name = |(key, _): &&(Key, usize)| matches!(key, Key::Name(_));
            let names = node.children.iter().filter(is_name).count();
            names > 0 && names < node.children.len()
        };
        self.shape = Some(shape);
        self.depth = depth;
        (!self.nodes.iter().any(is_mixed)).then_some(self)
    }

    /// Appends the result for a text. When it says no, `out` is as it was, and the general way
    /// gives the result or the failure.
    pub fn run(&self, text: &Bytes, depth_max: usize, size_max: usize, out: &mut Vec<u8>) -> bool {
        if std::str::from_utf8(text).is_err() {
            return false;
        }
        let mut places = vec![None; self.parts];
        let mut walk = Walk {
            nodes: &self.nodes,
            reader: Reader::new(text, depth_max),
            places: &mut places,
            names: Vec::new(),
        };
        walk.reader.skip_space();
        let is_read = match self.nodes.first() {
            Some(node) => walk.value(Some(node), false).is_ok(),
            None => false,
        };
        walk.reader.skip_space();
        if !is_read || walk.reader.peek().is_some() {
            return false;
        }
        let start = out.len();
        let limit = start.saturating_add(size_max);
        let is_written = match &self.shape {
            Some(shape) => write(shape, text, &places, limit, out),
            None => false,
        };
        if !is_written {
            out.truncate(start);
        }
        is_written
    }
}

type Place = Option<(usize, usize)>;

fn write(shape: &Shape, text: &[u8], places: &[Place], limit: usize, out: &mut Vec<u8>) -> bool {
    match shape {
        Shape::Literal(literal) => out.extend_from_slice(literal),
        Shape::Part(part) => {
            let place = places.get(*part).copied().flatten();
            let part = place.and_then(|(start, end)| text.get(start..end));
            out.extend_from_slice(part.unwrap_or(b"null"));
        }
        Shape::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                if !write(item, text, places, limit, out) {
                    return false;
                }
            }
            out.push(b']');
        }
        Shape::Object(members) => {
            out.push(b'{');
            for (at, (name, member)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(name);
                out.push(b':');
                if !write(member, text, places, limit, out) {
                    return false;
                }
            }
            out.push(b'}');
        }
    }
    out.len() <= limit
}

struct Walk<'a> {
    nodes: &'a [Node],
    reader: Reader<'a>,
    places: &'a mut [Place],
    /// The names of the objects around, where they are copied.
    names: Vec<StringSpan>,
}

impl<'a> Walk<'a> {
    fn fault<T>(&self) -> Result<T, Fault> {
        Err(self.reader.fault("left to the general way"))
    }

    /// Takes a value that begins here, and finds what of it is wanted. Within what is copied, names
    /// that stand twice are not left in.
    fn value(&mut self, node: Option<&'a Node>, is_copied: bool) -> Result<(), Fault> {
        let Some(node) = node else {
            return self.unnamed(is_copied);
        };
        let start = self.reader.at;
        let is_copied = is_copied || node.part.is_some();
        let children = node.children.as_slice();
        match (self.reader.peek(), children.first()) {
            (_, None) => self.unnamed(is_copied)?,
            (Some(b'{'), Some((Key::Name(_), _))) => self.object(children, is_copied)?,
            (Some(b'['), Some((Key::Index(_), _))) => self.array(children, is_copied)?,
            (Some(b'n'), _) => self.reader.skip_word(b"null")?,
            // What cannot be looked into is a failure, which the general way explains.
            _ => return self.fault(),
        }
        if let Some(part) = node.part
            && let Some(place) = self.places.get_mut(part)
        {
            *place = Some((start, self.reader.at));
        }
        Ok(())
    }

    /// Takes a value that no path leads into.
    #[inline]
    fn unnamed(&mut self, is_copied: bool) -> Result<(), Fault> {
        match self.reader.peek() {
            Some(b'{') if is_copied => self.object(&[], true),
            Some(b'[') if is_copied => self.array(&[], true),
            _ => self.reader.skip_value(),
        }
    }

    fn array(&mut self, children: &'a [(Key, usize)], is_copied: bool) -> Result<(), Fault> {
        if !self.reader.enter(b']')? {
            return Ok(());
        }
        let mut at = 0;
        loop {
            let child = children.iter().find(|(key, _)| *key == Key::Index(at));
            self.value(self.child(child), is_copied)?;
            at += 1;
            if !self.reader.has_more(b']')? {
                return Ok(());
            }
        }
    }

    fn object(&mut self, children: &'a [(Key, usize)], is_copied: bool) -> Result<(), Fault> {
        if !self.reader.enter(b'}')? {
            return Ok(());
        }
        let first_name = self.names.len();
        loop {
            let span = self.reader.skip_name()?;
            if span.has_escapes && (is_copied || !children.is_empty()) {
                return self.fault();
            }
            let name = self.name(span);
            if is_copied {
                self.remember(first_name, name, span)?;
            }
            let is_child = |key: &Key| matches!(key, Key::Name(it) if it == name);
            let child = children.iter().find(|(key, _)| is_child(key));
            let child = self.child(child);
            if let Some(node) = child {
                self.forget(node);
            }
            self.value(child, is_copied)?;
            if !self.reader.has_more(b'}')? {
                self.names.truncate(first_name);
                return Ok(());
            }
        }
    }

    fn child(&self, child: Option<&(Key, usize)>) -> Option<&'a Node> {
        child.and_then(|(_, child)| self.nodes.get(*child))
    }

    fn name(&self, span: StringSpan) -> &'a [u8] {
        self.reader
            .text
            .get(span.start..span.end)
            .unwrap_or_default()
    }

    fn remember(&mut self, first: usize, name: &[u8], span: StringSpan) -> Result<(), Fault> {
        let known = self.names.get(first..).unwrap_or_default();
        if known.len() >= MEMBERS_MAX || known.iter().any(|it| self.name(*it) == name) {
            return self.fault();
        }
        self.names.push(span);
        Ok(())
    }

    /// Forgets what an earlier member of the same name held.
    fn forget(&mut self, node: &'a Node) {
        if let Some(place) = node.part.and_then(|it| self.places.get_mut(it)) {
            *place = None;
        }
        for (_, child) in &node.children {
            if let Some(child) = self.nodes.get(*child) {
                self.forget(child);
            }
        }
    }
}
