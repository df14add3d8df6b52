//! Files within one folder, whose names may come from a message: they never lead out of it. The
//! folder is the flow's; below it each part of a name is opened by itself, and links are not
//! followed, so that nobody who can write there can lead a flow elsewhere. All of it may block.

pub(crate) mod place;

use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use component::definition::BuildContext;
use component::exchange::Exchange;
use component::handler::Services;
use config::{Code, Spanned};
use expr::template::Template;
use message::{Fault, Kind, Origin, Retry, memory};

use crate::background;
use crate::codes::{BAD_FILE_FOLDER, BAD_FILE_NAME};

/// The most bytes of a name with all its parts (PATH_MAX of Linux).
const NAME_MAX: usize = 4000;
/// The most bytes of one part of a name.
const PART_MAX: usize = 255;

/// Refuses what is no path of a folder, under this code; whether it is one.
pub(crate) fn is_folder(
    folder: &Spanned<String>,
    code: Code,
    context: &mut BuildContext<'_>,
) -> bool {
    let text = folder.value.as_str();
    let (message, hint) = if text.contains("${") {
        // Said here, not again by the loader.
        context.compiled.push(folder.span);
        let message = "a value cannot decide which folder it is";
        (message, "write the path of one folder")
    } else if text.trim().is_empty() || text.contains(char::is_control) || text.len() > NAME_MAX {
        (
            "this is not the path of a folder",
            "write one such as `./data`",
        )
    } else {
        return true;
    };
    context.report.error(code, folder.span, message).hint(hint);
    false
}

/// A folder and a file in it whose name a message decides.
pub(crate) struct Target {
    /// The folder, as seen from the working directory.
    pub folder: PathBuf,
    /// The folder as the flow file has it, which tests and mocks go by.
    pub written: Arc<str>,
    /// The name within it, `/` between its parts.
    pub name: Template,
}

impl Target {
    /// Reads folder and name. Every problem is reported.
    pub fn read(
        folder: &Spanned<String>,
        name: &Spanned<String>,
        context: &mut BuildContext<'_>,
    ) -> Option<Self> {
        let is_sound = is_folder(folder, BAD_FILE_FOLDER, context);
        let template = context.template(name)?;
        if let Some(text) = template.literal()
            && let Err(why) = parts(text)
        {
            context
                .report
                .error(BAD_FILE_NAME, name.span, why)
                .hint("write a name within the folder, such as `report.csv` or `2026/report.csv`");
            return None;
        }
        is_sound.then(|| Self {
            folder: context.surroundings.path(folder),
            written: folder.value.as_str().into(),
            name: template,
        })
    }

    /// The name for this message.
    ///
    /// # Errors
    /// `expression`, and `invalid` for one that is none within the folder.
    pub fn name(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<String, Fault> {
        let name = exchange.fill_text(&self.name, services)?;
        match parts(&name) {
            Ok(_) => Ok(name),
            Err(why) => Err(Fault::invalid(why)),
        }
    }

    /// Whether the name needs the body in memory.
    pub fn reads_body(&self) -> bool {
        component::block::needs_body(self.name.uses_input(), self.name.variables())
    }
}

/// The parts of a name, or what is wrong with it.
pub(crate) fn parts(name: &str) -> Result<Vec<&str>, &'static str> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err("the name of a file is empty or too long");
    }
    if name.contains(char::is_control) {
        return Err("the name of a file has a control character in it");
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err("the name of a file leads out of its folder or is not plain");
    }
    match parts.iter().any(|part| part.len() > PART_MAX) {
        true => Err("the name of a file is empty or too long"),
        false => Ok(parts),
    }
}

/// Does work on files where it holds nobody up.
///
/// # Errors
/// As [`fault`] says.
pub(crate) async fn work<T: Send + 'static>(
    (what, target): (&'static str, &Target),
    name: &str,
    services: &dyn Services,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Fault> {
    let done = background::done(services, work).await?;
    done.map_err(|error| {
        let folder = target.folder.display();
        let cause = format!("folder {folder}, file {}: {error}", name.escape_debug());
        fault(what, &error).with_cause(cause)
    })
}

/// What an error of the system is to the flow: `not-found`, `exists` or `too-large` raised,
/// `unavailable` for a full disk or when `limits.body_memory` is used up, else `internal`.
pub(crate) fn fault(what: &'static str, error: &Error) -> Fault {
    let raised = |name: &str, detail: &str, status| {
        Fault::raised(name, None, detail.to_owned()).with_status(status)
    };
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            raised("not-found", "there is no such file", 404)
        }
        ErrorKind::AlreadyExists => raised("exists", "there is such a file already", 409),
        ErrorKind::FileTooLarge => raised("too-large", "the file is too large", 500),
        ErrorKind::OutOfMemory => memory::no_room("there is no memory left for the file"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ResourceBusy => {
            let fault = Fault::new(Kind::Unavailable, Origin::Engine, what);
            fault.with_retry(Retry::Yes)
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            raised("not-found", "there is no such file", 404)
        }
        _ => Fault::new(Kind::Internal, Origin::Engine, what),
    }
}

/// A number that no other call of this process gets.
pub(crate) fn number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
