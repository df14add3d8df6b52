//! Secrets that flow files name: read from the environment, a folder and an encrypted file,
//! registered for redaction before anybody else sees them, and looked at again while flows run.

pub(crate) mod command;
mod content;
mod envelope;
mod key;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use config::{Report, Secrets, Sources, Span, Spanned};
use flow::{KnownSecrets, SecretSources};
use message::secret;

use self::key::Key;
use crate::codes::{BAD_SECRET, SECRET_TWICE};
use crate::load::folder_of;
use crate::regular_file;
use crate::tls::hash;

/// The most files of a folder.
const FILES_MAX: usize = 1000;
/// The most bytes of a file of a folder.
const FILE_MAX: u64 = 64 * 1024;
/// The most bytes of an encrypted file, and of all values together.
const TOTAL_MAX: u64 = 1024 * 1024;

/// Looks an environment variable up.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Secrets, and the files they were read from.
#[derive(Default)]
pub(crate) struct LoadedSecrets {
    /// What flows may use.
    pub known: KnownSecrets,
    /// With hashes of what was in there.
    watched: Vec<(Place, Option<u64>)>,
}

/// Where secrets are.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Folder(PathBuf),
}

impl Place {
    /// A hash of what is there now; none when it cannot be read.
    fn look(&self) -> Option<u64> {
        match self {
            Self::File(path) => regular_file::read(path, TOTAL_MAX)
                .ok()
                .map(|bytes| hash(&bytes)),
            Self::Folder(path) => read_folder(path).ok().map(|files| hash_files(&files)),
        }
    }
}

impl LoadedSecrets {
    /// Whether a file or folder has changed since it was read.
    pub fn has_changed(&self) -> bool {
        self.watched
            .iter()
            .any(|(place, then)| place.look() != *then)
    }

    /// The hashes of files and folders as they are now.
    pub fn look(&self) -> Vec<Option<u64>> {
        self.watched.iter().map(|(place, _)| place.look()).collect()
    }

    /// Takes files and folders as they were [seen](Self::look) before a load for those that have
    /// been read: what is wrong with them has been told, and is not told again until they change.
    pub fn accept(&mut self, seen: Vec<Option<u64>>) {
        for ((_, then), seen) in self.watched.iter_mut().zip(seen) {
            *then = seen;
        }
    }

    /// Reads the secrets of these sources. Every problem is reported, without a value. When it
    /// returns, all values are registered for redaction.
    pub fn read(
        declared: &SecretSources,
        environment: Environment<'_>,
        sources: &Sources,
        report: &mut Report,
    ) -> Self {
        let before = report.diagnostics().len();
        let mut reader = Reader {
            environment,
            sources,
            report,
            values: BTreeMap::new(),
            watched: Vec::new(),
        };
        for name in &declared.env {
            reader.variable(name);
        }
        if let Some(folder) = &declared.folder {
            reader.folder(folder);
        }
        if let Some(file) = &declared.file {
            reader.file(file);
        }
        reader.check_total();
        let (values, watched) = (reader.values, reader.watched);
        let values = values.into_iter().map(|(name, (value, _))| (name, value));
        Self {
            known: KnownSecrets {
                values: Secrets::new(values.collect()),
                is_incomplete: report.diagnostics().len() > before,
            },
            watched,
        }
    }
}

struct Reader<'a> {
    environment: Environment<'a>,
    sources: &'a Sources,
    report: &'a mut Report,
    /// Values with the place that says where they come from.
    values: BTreeMap<String, (String, Span)>,
    watched: Vec<(Place, Option<u64>)>,
}

impl Reader<'_> {
    fn variable(&mut self, name: &Spanned<String>) {
        let variable = &name.value;
        match (self.environment)(variable) {
            Some(value) => self.add_all([(variable.clone(), value)], name.span),
            None => {
                let message = format!("the environment variable {variable} is not set to a text");
                let hint = format!("set it before the start: {variable}=... intertie run ...");
                self.refuse(name.span, message, &hint);
            }
        }
    }

    fn folder(&mut self, folder: &Spanned<String>) {
        let path = self.path(folder);
        let result = read_folder(&path);
        let seen = result.as_deref().ok().map(hash_files);
        self.watched.push((Place::Folder(path), seen));
        let files = match result {
            Ok(files) => files,
            Err(Unreadable { name, reason }) => {
                let mut path = PathBuf::from(&folder.value);
                path.extend(name);
                let message = format!("{} cannot be read: {reason}", shown(&path));
                return self.refuse(folder.span, message, RELATIVE);
            }
        };
        let mut values = Vec::new();
        for (name, bytes) in files {
            let path = shown(&Path::new(&folder.value).join(&name));
            if !Secrets::is_name(&name) {
                let message = format!("{path}: the file's name cannot be the name of a secret");
                self.refuse(folder.span, message, NAME_RULE);
                continue;
            }
            match String::from_utf8(bytes) {
                Ok(text) => values.push((name, without_newline(&text).to_owned())),
                Err(_) => {
                    let message = format!("{path} is not UTF-8");
                    self.refuse(folder.span, message, "encode it, in base64 for example");
                }
            }
        }
        self.add_all(values, folder.span);
    }

    fn file(&mut self, file: &Spanned<String>) {
        let path = self.path(file);
        let result = regular_file::read(&path, TOTAL_MAX);
        let seen = result.as_deref().ok().map(hash);
        self.watched.push((Place::File(path), seen));
        let name = shown(Path::new(&file.value));
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) => {
                let message = format!("{name} cannot be read: {error}");
                return self.refuse(file.span, message, RELATIVE);
            }
        };
        let key = match Key::find(self.environment) {
            Ok(key) => key,
            Err(problem) => return self.refuse(file.span, problem.message, problem.hint),
        };
        if let Some(path) = key.path() {
            let place = Place::File(path.to_owned());
            let seen = place.look();
            self.watched.push((place, seen));
        }
        match envelope::open(&bytes, &key).and_then(|text| content::parse(&text)) {
            Ok(values) => self.add_all(values, file.span),
            Err(problem) => {
                let message = format!("{name}: {}", problem.message);
                self.refuse(file.span, message, problem.hint);
            }
        }
    }

    /// Takes values over and registers them before anything is told about them.
    fn add_all(&mut self, values: impl IntoIterator<Item = (String, String)>, span: Span) {
        let values: Vec<(String, String)> = values.into_iter().collect();
        secret::register_all(values.iter().map(|(_, value)| value.as_str()));
        for (name, value) in values {
            if !secret::is_long_enough(&value) {
                let message = format!("the secret {name} has fewer than {SHORTEST} characters");
                self.refuse(span, message, "one that short cannot be kept out of logs");
            } else if let Some((_, first)) = self.values.get(&name) {
                let message = format!("the secret {name} is given twice");
                let hint = "rename one of them, or leave it out";
                let problem = self.report.error(SECRET_TWICE, span, message);
                problem.also(*first, "it comes from here, too").hint(hint);
            } else {
                self.values.insert(name, (value, span));
            }
        }
    }

    fn check_total(&mut self) {
        let sizes = self.values.values().map(|(value, _)| value.len() as u64);
        let total: u64 = sizes.sum();
        let last = self.values.values().next_back().map(|(_, span)| *span);
        if let Some(span) = last.filter(|_| total > TOTAL_MAX) {
            let message = format!("all secrets together have {total} bytes");
            self.refuse(span, message, "at most 1 MiB can be read");
        }
    }

    fn path(&self, name: &Spanned<String>) -> PathBuf {
        folder_of(self.sources.name(name.span.source)).join(&name.value)
    }

    fn refuse(&mut self, span: Span, message: impl Into<String>, hint: &str) {
        self.report.error(BAD_SECRET, span, message).hint(hint);
    }
}

const SHORTEST: usize = secret::SHORTEST;
const RELATIVE: &str = "the name is relative to this flow file's folder";
const NAME_RULE: &str =
    "a name has letters, digits, `_`, `.` and `-`, and begins with a letter or `_`";

/// What is wrong with secrets, in words that hold no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub message: String,
    pub hint: &'static str,
}

impl Problem {
    fn new(message: impl Into<String>, hint: &'static str) -> Self {
        Self {
            message: message.into(),
            hint,
        }
    }
}

/// A file or folder that cannot be read.
struct Unreadable {
    /// The file of the folder, when it is not the folder itself.
    name: Option<PathBuf>,
    reason: io::Error,
}

/// Name and content of the files of a folder, in the order of their names. Hidden ones and what is
/// no file are left out; links are followed.
fn read_folder(path: &Path) -> Result<Vec<(String, Vec<u8>)>, Unreadable> {
    let whole = |reason| Unreadable { name: None, reason };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(whole)? {
        let name = entry.map_err(whole)?.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let of_file = |reason| Unreadable {
            name: Some(PathBuf::from(&name)),
            reason,
        };
        let file = path.join(&name);
        if !fs::metadata(&file).map_err(of_file)?.is_file() {
            continue;
        }
        if files.len() == FILES_MAX {
            let reason = io::Error::other(format!("it has more than {FILES_MAX} files"));
            return Err(whole(reason));
        }
        let bytes = regular_file::read(&file, FILE_MAX).map_err(of_file)?;
        files.push((name.to_string_lossy().into_owned(), bytes));
    }
    files.sort();
    Ok(files)
}

fn hash_files(files: &[(String, Vec<u8>)]) -> u64 {
    let hashes = files
        .iter()
        .flat_map(|(name, bytes)| [hash(name.as_bytes()), hash(bytes)]);
    let hashes: Vec<u8> = hashes.flat_map(u64::to_le_bytes).collect();
    hash(&hashes)
}

/// Text without one newline at its end, which editors and `echo` leave there.
fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

fn shown(path: &Path) -> String {
    format!("`{}`", path.display().to_string().escape_debug())
}

#[cfg(test)]
mod tests;
