//! Folders that are copied, put back, and damaged.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use fastrand::Rng;

/// Replaces a folder by a copy of another one.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    copy_all(from, to)
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

/// All files that hold something, by their paths in the folder.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at)? {
            let path = entry?.path();
            let is_empty_by_nature = path.ends_with("lock") || path.ends_with("reserve");
            match path.is_dir() {
                true => folders.push(path),
                false if is_empty_by_nature => {}
                false => found.push(path),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What is done to each file in turn.
pub const ATTACKS: [&str; 4] = ["removed", "emptied", "cut", "bit flipped"];

/// The parts of a data folder that are removed as a whole.
pub const PARTS: [&str; 2] = ["store", "topics"];

/// Damages a file. Says where.
pub fn attack(file: &Path, how: &str, random: &mut Rng) -> io::Result<String> {
    let size = fs::metadata(file)?.len();
    let at = random.u64(..size.max(1));
    match how {
        "removed" => fs::remove_file(file)?,
        "emptied" => OpenOptions::new().write(true).open(file)?.set_len(0)?,
        "cut" => OpenOptions::new().write(true).open(file)?.set_len(at)?,
        _ => {
            let mut bytes = fs::read(file)?;
            if let Some(byte) = bytes.get_mut(at as usize) {
                *byte ^= 1 << random.u8(..8);
            }
            fs::write(file, bytes)?;
        }
    }
    Ok(format!("{} {how} at byte {at} of {size}", file.display()))
}
