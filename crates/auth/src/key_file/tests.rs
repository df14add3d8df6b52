//! When files are read again.

use std::fs::{self, File};
use std::path::PathBuf;

use super::*;
use crate::testing::{down, run};

/// A file's text, which must not begin with `bad`.
struct Text(String);

impl Content for Text {
    const CHANGED: EventKind = EventKind::KeysChanged;
    type Settings = ();

    fn parse(text: &str, (): &()) -> Result<Self, String> {
        match text.starts_with("bad") {
            true => Err(format!("line 1: {text}")),
            false => Ok(Self(text.to_owned())),
        }
    }

    fn changes(&self, before: &Self) -> Changes {
        Changes::between([("text", &before.0)], [("text", &self.0)])
    }
}

/// A file in a folder of its own, gone when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = format!("intertie-key-file-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("keys")
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn watched(file: &Scratch) -> WatchedFile<Text> {
    WatchedFile::new(file.path(), (), Arc::new(Text("at load".to_owned())))
}

#[test]
fn a_read_that_fails_is_tried_again_and_told_once() {
    let file = Scratch::new("fails");
    file.write("one");
    let watched = watched(&file);
    let fail = |_: &Path| Err(io::Error::other("too many open files"));
    assert_eq!(watched.look_by(fail), Err("too many open files".to_owned()));
    assert_eq!(watched.look_by(fail), Ok(false));
    assert_eq!(watched.content().0, "at load");
    assert_eq!(watched.look(), Ok(true));
    assert_eq!(watched.content().0, "one");
    let untouched = |_: &Path| panic!("it has not changed");
    assert_eq!(watched.look_by(untouched), Ok(false));
    fs::remove_file(file.path()).unwrap();
    assert!(watched.look().is_err());
    assert_eq!(watched.look(), Ok(false));
    assert_eq!(watched.content().0, "one");
}

#[test]
fn a_file_that_is_wrong_is_told_once_for_each_version() {
    let file = Scratch::new("wrong");
    let watched = watched(&file);
    for (text, told) in [("bad", "line 1: bad"), ("bad too", "line 1: bad too")] {
        file.write(text);
        assert_eq!(watched.look(), Err(told.to_owned()));
        assert_eq!(watched.look(), Ok(false));
    }
    file.write("good again");
    assert_eq!(watched.look(), Ok(true));
    file.write("bad too");
    assert!(watched.look().is_err());
    assert_eq!(watched.content().0, "good again");
}

#[test]
fn a_reload_reads_a_file_that_looks_unchanged() {
    let file = Scratch::new("reload");
    file.write("one");
    let watched = Arc::new(watched(&file));
    assert_eq!(watched.look(), Ok(true));
    // Within what the file system tells times apart by.
    let modified = fs::metadata(file.path()).unwrap().modified().unwrap();
    file.write("two");
    let opened = File::options().append(true).open(file.path()).unwrap();
    opened.set_modified(modified).unwrap();
    assert_eq!(watched.look(), Ok(false));
    let plan = watch_file("test", &watched, (&Arc::default(), &Arc::default()), |_| ());
    let nobody = |_: &message::Request| (Duration::ZERO, down());
    run(nobody, |worker| async move {
        let stop = Box::pin(std::future::ready(()));
        plan.source.run(&plan.flow, &worker, stop).await;
    });
    assert_eq!(watched.content().0, "two");
}
