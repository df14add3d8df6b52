//! Reads a WSDL file and all files that it imports.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use expr::encoding::xml_to_utf8;
use expr::xml::{self, Element};

use crate::soap::names::{QName, WSDL, WSDL20, XS};
use crate::soap::problem::{Place, Problem};
use crate::soap::wsdl::known;
use crate::soap::xsd::components::{SchemaDocument, Schemas};

/// The most files of one service.
const FILES_MAX: usize = 500;
/// The most bytes of them together.
const SIZE_MAX: usize = 64 * 1024 * 1024;
/// The most elements of a file within each other.
const DEPTH_MAX: usize = 128;

/// Reads a file by its name, which is relative to the flow file's folder.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<Bytes, String>;

/// A document of WSDL.
#[derive(Debug)]
pub(super) struct Document {
    pub file: Arc<str>,
    pub root: Element,
}

/// A service's description: all of its files.
#[derive(Debug)]
pub struct Wsdl {
    /// Every file with its name, the WSDL file itself first.
    pub files: Vec<(Arc<str>, Bytes)>,
    /// Which file imports what, as it says it, and the name of that file.
    pub imports: Vec<(Arc<str>, String, String)>,
    pub(super) documents: Vec<Document>,
    /// All schemas.
    pub schemas: Schemas,
}

/// A file that is still to be read.
struct Wanted {
    name: String,
    /// Where it is imported; nowhere for the first.
    by: Place,
    /// The namespace of the schema that includes it.
    includer: Option<Arc<str>>,
    is_included: bool,
}

struct Reader<'a> {
    read: ReadFile<'a>,
    files: Vec<(Arc<str>, Bytes)>,
    seen: Vec<(String, Option<Arc<str>>)>,
    imports: Vec<(Arc<str>, String, String)>,
    open: VecDeque<Wanted>,
    documents: Vec<Document>,
    schemas: Vec<SchemaDocument>,
    size: usize,
}

impl Wsdl {
    /// Reads the file of this name and all that it leads to.
    ///
    /// # Errors
    /// When one cannot be read, is no XML, or is neither WSDL 1.1 nor a schema.
    pub fn read(name: &str, read: ReadFile<'_>) -> Result<Self, Problem> {
        let file: Arc<str> = name.into();
        let mut reader = Reader {
            read,
            files: Vec::new(),
            seen: Vec::new(),
            imports: Vec::new(),
            open: VecDeque::new(),
            documents: Vec::new(),
            schemas: Vec::new(),
            size: 0,
        };
        let by = Place { file, line: 0 };
        reader.want(plain(name), by, None, false);
        while let Some(wanted) = reader.open.pop_front() {
            reader.take(wanted)?;
        }
        Ok(Self {
            files: reader.files,
            imports: reader.imports,
            documents: reader.documents,
            schemas: Schemas::new(reader.schemas)?,
        })
    }

    /// All declarations of a kind with the documents that they stand in.
    pub(super) fn all<'a>(
        &'a self,
        kind: &'a str,
    ) -> impl Iterator<Item = (&'a Document, &'a Element)> {
        let documents = self.documents.iter();
        documents.flat_map(move |document| {
            let nodes = document.root.all(WSDL, kind);
            nodes.map(move |node| (document, node))
        })
    }

    /// The declaration that a text in an element names.
    pub(super) fn named<'a>(
        &'a self,
        kind: &'a str,
        text: &str,
        (document, node): (&Document, &Element),
    ) -> Result<(&'a Document, &'a Element), Problem> {
        let name = QName::read(text, node, &document.file)?;
        let found = self.all(kind).find(|(document, node)| {
            let target = document.root.attribute("targetNamespace");
            node.attribute("name")
                .is_some_and(|local| name.is(target, local))
        });
        found.ok_or_else(|| {
            let message = format!("there is no {kind} {name}");
            Problem::new(&document.place(node), message)
        })
    }
}

impl Document {
    pub fn place(&self, node: &Element) -> Place {
        Place {
            file: Arc::clone(&self.file),
            line: node.line,
        }
    }
}

impl Reader<'_> {
    fn want(&mut self, name: String, by: Place, includer: Option<Arc<str>>, is_included: bool) {
        let key = (name.clone(), includer.clone());
        if self.seen.contains(&key) {
            return;
        }
        self.seen.push(key);
        self.open.push_back(Wanted {
            name,
            by,
            includer,
            is_included,
        });
    }

    /// The name of a file that another one names.
    fn resolve(&mut self, from: &str, location: &str, place: &Place) -> Result<String, Problem> {
        let name = resolve(from, location, place)?;
        self.imports
            .push((from.into(), location.to_owned(), name.clone()));
        Ok(name)
    }

    /// The name of a file that a schema imports: its own copy, or one that is brought along.
    fn imported(
        &mut self,
        from: &str,
        (namespace, location): (Option<&str>, &str),
        place: &Place,
    ) -> Result<String, Problem> {
        let Some(name) = known::file(namespace, location) else {
            return self.resolve(from, location, place);
        };
        self.imports
            .push((from.into(), location.to_owned(), name.clone()));
        Ok(name)
    }

    fn take(&mut self, wanted: Wanted) -> Result<(), Problem> {
        let Wanted {
            name,
            by,
            includer,
            is_included,
        } = wanted;
        let bytes = known::read(&name).map_or_else(|| (self.read)(&name), Ok);
        let bytes = bytes.map_err(|error| {
            let message = match by.line {
                0 => format!("the file cannot be read: {error}"),
                _ => format!("`{}` cannot be read: {error}", name.escape_debug()),
            };
            Problem::new(&by, message)
                .hint("files lie in the flow file's folder or below, and are named from there")
        })?;
        self.size += bytes.len();
        if self.size > SIZE_MAX || self.files.len() >= FILES_MAX {
            return Err(Problem::new(
                &by,
                "the service has too many files, or too large ones",
            ));
        }
        let file: Arc<str> = name.as_str().into();
        let bytes = xml_to_utf8(&bytes, None).map_err(|reason| {
            let file = Arc::clone(&file);
            Problem::new(&Place { file, line: 1 }, reason.to_string())
                .hint("save the file as UTF-8")
        })?;
        let root = xml::parse(&bytes, DEPTH_MAX).map_err(|error| {
            let place = Place {
                file: Arc::clone(&file),
                line: error.line,
            };
            Problem::new(&place, error.detail)
        })?;
        if !self.files.iter().any(|(known, _)| *known == file) {
            self.files.push((Arc::clone(&file), bytes));
        }
        let place = Place {
            file: Arc::clone(&file),
            line: root.line,
        };
        match (root.namespace.as_deref(), root.name.as_str()) {
            (Some(WSDL), "definitions") if !is_included => self.definitions(file, root),
            (Some(XS), "schema") => self.schema(file, root, includer, is_included),
            (Some(WSDL20), _) => Err(Problem::new(&place, "this is WSDL 2.0")
                .hint("use the service's WSDL 1.1: most servers have both")),
            _ => Err(
                Problem::new(&place, "this is neither WSDL 1.1 nor a schema")
                    .hint("is it a page that a server sent instead of the file?"),
            ),
        }
    }

    fn definitions(&mut self, file: Arc<str>, root: Element) -> Result<(), Problem> {
        for types in root.all(WSDL, "types") {
            for schema in types.all(XS, "schema") {
                self.schema(Arc::clone(&file), schema.clone(), None, false)?;
            }
        }
        let document = Document { file, root };
        for import in document.root.all(WSDL, "import") {
            let place = document.place(import);
            let is_built_in = known::is_built_in(import.attribute("namespace"));
            if let Some(location) = import.attribute("location").filter(|_| !is_built_in) {
                let name = self.resolve(&document.file, location, &place)?;
                self.want(name, place, None, false);
            }
        }
        self.documents.push(document);
        Ok(())
    }

    fn schema(
        &mut self,
        file: Arc<str>,
        root: Element,
        includer: Option<Arc<str>>,
        is_included: bool,
    ) -> Result<(), Problem> {
        let own: Option<Arc<str>> = root.attribute("targetNamespace").map(Arc::from);
        let is_chameleon = is_included && own.is_none() && includer.is_some();
        let place = |line| Place {
            file: Arc::clone(&file),
            line,
        };
        if is_included && own.is_some() && own != includer {
            let message = "an included schema of another namespace";
            return Err(Problem::new(&place(root.line), message).hint("`import` it"));
        }
        let target = own.or(includer);
        for node in root
            .children
            .iter()
            .filter(|it| it.namespace.as_deref() == Some(XS))
        {
            let place = place(node.line);
            let location = node.attribute("schemaLocation");
            match node.name.as_str() {
                "include" => {
                    let location = location.unwrap_or_default();
                    let name = self.resolve(&file, location, &place)?;
                    self.want(name, place, target.clone(), true);
                }
                "import" => {
                    let namespace = node.attribute("namespace");
                    let is_built_in = known::is_built_in(namespace);
                    if let Some(location) = location.filter(|it| !is_built_in && !it.is_empty()) {
                        let name = self.imported(&file, (namespace, location), &place)?;
                        self.want(name, place, None, false);
                    }
                }
                "redefine" | "override" => {
                    let message = format!("`{}` is not supported", node.name);
                    return Err(Problem::new(&place, message)
                        .hint("write what it makes into a schema of its own, and include that"));
                }
                _ => {}
            }
        }
        self.schemas.push(SchemaDocument {
            file,
            root,
            target,
            is_chameleon,
        });
        Ok(())
    }
}

/// The name of a file that another one names.
fn resolve(from: &str, location: &str, place: &Place) -> Result<String, Problem> {
    let shown = location.escape_debug();
    if location.contains("://") || location.starts_with("urn:") {
        let message = format!("`{shown}` is on another machine");
        return Err(Problem::new(place, message)
            .hint("nothing is fetched: keep a copy beside the file and name that"));
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|it| !it.is_empty()).collect();
    for part in location.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_some() => {}
            ".." => {
                let message = format!("`{shown}` leads out of the flow file's folder");
                return Err(Problem::new(place, message).hint("keep all files in it or below"));
            }
            part => parts.push(part),
        }
    }
    match parts.is_empty() || location.starts_with('/') || location.is_empty() {
        true => Err(Problem::new(place, format!("`{shown}` names no file"))),
        false => Ok(parts.join("/")),
    }
}

/// A name without the points that say nothing.
fn plain(name: &str) -> String {
    let parts = name.split('/').filter(|it| !matches!(*it, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}
