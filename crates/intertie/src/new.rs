//! `intertie new`: writes a folder with flows that run, their tests, and the schema for editors.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, bail};

use crate::reference;

/// The files, but for the schema.
const FILES: [(&str, &str); 3] = [
    ("flows.yaml", include_str!("new/flows.yaml")),
    ("flows.test.yaml", include_str!("new/flows.test.yaml")),
    ("README.md", include_str!("new/README.md")),
];

/// Writes a new folder and says what can be done with it.
///
/// # Errors
/// When the folder is there and not empty, or cannot be written.
pub(crate) fn write(folder: &Path) -> anyhow::Result<String> {
    let shown = folder.display();
    if folder.exists() {
        let mut entries = fs::read_dir(folder).with_context(|| format!("{shown}"))?;
        if entries.next().is_some() {
            bail!("{shown} is not empty; choose another folder");
        }
    }
    fs::create_dir_all(folder).with_context(|| format!("{shown}"))?;
    let schema = format!("{:#}\n", reference::schema());
    let files = FILES
        .iter()
        .copied()
        .chain([("flow-file.schema.json", schema.as_str())]);
    for (name, text) in files {
        let path = folder.join(name);
        let file = fs::File::create_new(&path);
        let mut file = file.with_context(|| format!("{}", path.display()))?;
        file.write_all(text.as_bytes())
            .with_context(|| format!("{}", path.display()))?;
    }
    Ok(format!(
        "{shown} is ready:\n  intertie run {shown}\n  intertie test {shown}\n\
         and see {shown}/README.md\n"
    ))
}
