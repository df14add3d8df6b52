//! Real servers on free ports with temporary folders: one file each.

mod iridium;
mod kosoku;
mod mariadb;
mod nginx;
mod postgres;
mod rabbitmq;
mod redis;
mod smtp;
mod soap_peer;
mod tinyproxy;
mod websocket_reader;

use std::path::PathBuf;

pub use iridium::Iridium;
pub use kosoku::{Verdict, kosoku};
pub use mariadb::MariaDb;
pub use nginx::Nginx;
pub use postgres::Postgres;
pub use rabbitmq::Rabbitmq;
pub use redis::Redis;
pub use smtp::{MailServer, Security};
pub use soap_peer::{SoapPeer, zeep};
pub use tinyproxy::Tinyproxy;
pub use websocket_reader::websocket_reader;

/// Where a program is: in a folder of the search path, or where Debian keeps servers.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}

/// The Python with the packages that servers and clients of tests need: where
/// `INTERTIE_TEST_PYTHON` says, or where `cargo xtask test` puts it.
fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("INTERTIE_TEST_PYTHON") {
        return python.into();
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let python = target.join("tools/python/bin/python");
    assert!(
        python.is_file(),
        "Python's zeep, spyne, aiosmtpd, kosoku and websockets are missing: `cargo xtask test` installs them"
    );
    python
}
